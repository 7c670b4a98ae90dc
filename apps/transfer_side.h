#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/transfer_control.h"
#include "base/result.h"
#include "bench/bare_fabric.h"
#include "transfer/libfabric/options.h"
#include "transfer/transfer_engine.h"

namespace tandem::apps {

/// What of the program one round of `bench transfer` uses.
enum class TransferKind : uint32_t {
  kBare,     ///< nothing: fi_writedata in a loop
  kSingle,   ///< a transfer for each slice
  kPaged,    ///< one transfer of pages
  kScatter,  ///< one transfer of slices to several targets
};

struct TransferRound {
  TransferKind kind = TransferKind::kBare;
  uint64_t bytes = 0;   ///< of a slice
  uint64_t slices = 0;  ///< none: the end of the measurement
};

/// One of the two sides of `bench transfer`: an engine over one rail, a bare loop over an endpoint
/// of its own, and memory for both. One thread, which spins, and yields when nothing moves.
class TransferSide {
 public:
  struct Options {
    transfer::LibfabricOptions network;
    uint32_t writes_max = 64;  ///< of the rail and of the bare loop, under way
  };
  /// Meets the other side, which does the same. `control` must outlive the object.
  static Result<std::unique_ptr<TransferSide>> meet(const Options& options,
                                                    TransferControl& control);
  static constexpr uint64_t kRegionBytes = uint64_t{64} << 20;

  /// Source: seconds until all slices are delivered and the target has said that it counted them.
  Result<double> write(const TransferRound& round);
  /// Source: microseconds of each slice from its submission to its end, one at a time.
  Result<std::vector<double>> write_singly(const TransferRound& round);
  /// Source: lets serve() return.
  Result<void> finish();
  /// Target: counts what each round writes, until finish().
  Result<void> serve();

 private:
  TransferSide(const Options& options, TransferControl& control)
      : options_(options), control_(control) {}
  Result<void> open_engine();
  Result<void> begin(const TransferRound& round);
  Result<void> await(const bool& is_so);
  Result<void> await_counted();
  Result<void> write_slices(const TransferRound& round);
  Result<void> write_transfers(const TransferRound& round);
  Result<transfer::TransferId> begin_transfer(bool& has_ended);
  Result<void> write_one(uint64_t number, uint64_t bytes, bool& has_ended);

  Options options_;
  TransferControl& control_;
  std::unique_ptr<bench::BareFabric> bare_;
  std::vector<std::byte> region_;
  std::unique_ptr<transfer::TransferEngine> engine_;
  transfer::MemoryId memory_;
  std::vector<transfer::TargetId> targets_;  // all of the other side's region
  uint16_t epoch_ = 0;                       // of the round; both sides count alike
  std::optional<Error> failure_;             // of a transfer
};

}  // namespace tandem::apps
