#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "transfer/libfabric/discovery.h"
#include "transfer/libfabric/handle.h"

namespace tandem::transfer {

/// One open endpoint of libfabric and what it stands on. Owns all of it. One thread at a time.
/// Operations complete silently unless they ask for a completion.
class LibfabricEndpoint {
 public:
  struct Options {
    LibfabricOptions network;
    size_t completions_max = 4096;  ///< that the completion queue holds
    /// What operations without flags of their own ask for, e.g. FI_COMPLETION.
    uint64_t operation_flags = 0;
  };
  static Result<LibfabricEndpoint> open(const Options& options);

  const fi_info& info() const { return *info_; }
  fid_domain* domain() const { return domain_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  bool has(int mr_mode) const { return (info_->domain_attr->mr_mode & mr_mode) != 0; }

  /// Readable when a completion may wait; -1 where the provider has none and must be polled.
  int descriptor() const { return descriptor_; }

  /// By which peers name this endpoint (fi_getname): bytes of the provider's own format.
  Result<std::vector<std::byte>> name() const;
  /// A peer as this endpoint numbers it. kInvalidArgument for what is no name.
  Result<fi_addr_t> add_peer(std::span<const std::byte> name);
  /// With cuts_connections(): the connection with the peer ends, whoever made it, and what was
  /// under way on it. All that can still be told about that is in the completion queue on return.
  void remove_peer(fi_addr_t peer);
  /// A peer's name for people: "fi_sockaddr_in://192.0.2.1:7000".
  std::string describe(std::span<const std::byte> name) const;

  /// Whether the provider makes its endpoints of connections (ofi_rxm).
  bool has_connections() const { return has_connections_; }
  /// Whether remove_peer() ends a connection. True for those, once prepare_libfabric()
  /// has asked for it.
  bool cuts_connections() const { return cuts_connections_; }
  /// False for shm, where a confirmed write without bytes never ends.
  bool confirms_empty_writes() const { return confirms_empty_writes_; }
  /// tcp;ofi_rxm. A connection that is closed inside a write with an immediate makes libfabric 1.17
  /// follow a null pointer, so there immediates travel behind their bytes as writes of their own:
  /// one for several, and one confirmation for them all (LibfabricPosts::submit_batch()).
  bool batches_writes() const { return batches_writes_; }

 private:
  LibfabricEndpoint() = default;

  // In this order: what stands below outlives what stands on it.
  LibfabricInfo info_;
  LibfabricHandle<fid_fabric> fabric_;
  LibfabricHandle<fid_domain> domain_;
  LibfabricHandle<fid_av> addresses_;
  LibfabricHandle<fid_cq> completions_;
  LibfabricHandle<fid_ep> endpoint_;
  int descriptor_ = -1;
  bool has_connections_ = false;
  bool cuts_connections_ = false;
  bool batches_writes_ = false;
  bool confirms_empty_writes_ = true;
};

}  // namespace tandem::transfer
