#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/socket.h"
#include "transfer/libfabric/endpoint.h"

namespace tandem::bench {

/// The floor of a transfer: what libfabric itself reaches with fi_writedata in a loop and nothing
/// around it. One side of a pair of processes; each owns an endpoint and a registered region, and
/// both spin on their queues, yielding when these are empty. `control` joins the two.
class BareFabric {
 public:
  struct Options {
    transfer::LibfabricOptions network;
    size_t region_bytes = size_t{64} << 20;  ///< writes go round in it, so that no cache holds all
    size_t writes_max = 64;                  ///< posted and not yet complete
    /// Writes are complete when delivered; else when the provider says so by default.
    bool confirms_delivery = true;
  };
  /// Meets the other side, which must do the same at that time. `control` must outlive the object.
  static Result<std::unique_ptr<BareFabric>> meet(const Options& options, io::Socket& control);

  struct Round {
    uint64_t bytes = 0;  ///< of a write; at most the region's
    uint64_t writes = 0;
  };
  /// Source: seconds from the first post until all writes are complete and the other side, which
  /// runs count() at that time, has said that it counted them.
  Result<double> write(const Round& round);
  /// Source: one write at a time; microseconds of each until it is complete.
  Result<std::vector<double>> write_singly(const Round& round);
  /// Target: waits for so many arrivals and says so.
  Result<void> count(uint64_t writes);

 private:
  BareFabric(const Options& options, io::Socket& control, transfer::LibfabricEndpoint endpoint)
      : options_(options), control_(control), endpoint_(std::move(endpoint)) {}

  Result<void> exchange();
  /// Posts the n-th write of a round; false when there is no room now.
  Result<bool> post(uint64_t number, uint64_t bytes);
  /// Completions that were waiting, own or of arrivals; yields the core when there are none.
  Result<uint64_t> poll();
  Result<void> await_arrivals();

  Options options_;
  io::Socket& control_;
  transfer::LibfabricEndpoint endpoint_;
  std::vector<std::byte> region_;
  transfer::LibfabricHandle<fid_mr> registration_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  uint64_t peer_base_ = 0;
  uint64_t peer_key_ = 0;
};

}  // namespace tandem::bench
