#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transfer/libfabric/endpoint.h"
#include "transfer/rail.h"

namespace tandem::transfer {

/// Registers memory with an endpoint, where that is needed, and owns the registrations.
class LibfabricRegions {
 public:
  explicit LibfabricRegions(const LibfabricEndpoint& endpoint) : endpoint_(endpoint) {}

  /// kUnimplemented for memory that is not the CPU's.
  Result<Registration> add(const MemoryBlock& memory, Access access);
  /// What a write reads from.
  struct Source {
    std::byte* data = nullptr;
    void* descriptor = nullptr;
  };
  Source source(RailRegionId region) const;

  /// The address of whom is told the key of a target; empty: not said.
  void set_writer(RailRegionId region, std::vector<std::byte> address);
  struct Closed {
    Access access = Access::kSource;
    std::vector<std::byte> writer;
  };
  /// The provider knows its key no more when this returns.
  Closed close(RailRegionId region);

 private:
  struct Region {
    Access access = Access::kSource;
    std::byte* data = nullptr;
    LibfabricHandle<fid_mr> registration;  // null where sources need none
    std::vector<std::byte> writer;
  };
  Result<LibfabricHandle<fid_mr>> register_with_provider(const MemoryBlock& memory,
                                                         Access access) const;

  const LibfabricEndpoint& endpoint_;
  std::unordered_map<RailRegionId, Region> regions_;
  uint32_t next_id_ = 0;
};

}  // namespace tandem::transfer
