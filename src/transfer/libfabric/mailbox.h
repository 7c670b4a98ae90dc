#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/libfabric/endpoint.h"

namespace tandem::transfer {

/// What libfabric gives back with the end of an operation. The words are the provider's. It stays
/// where it is until the operation has ended.
struct LibfabricContext {
  fi_context2 words{};  // first: libfabric's pointer to an operation is a pointer to this
  uint32_t index = 0;   ///< of its post or receive buffer
};

/// Memory for messages in equal pieces, registered where the provider wants that.
class LibfabricBuffers {
 public:
  static Result<LibfabricBuffers> create(const LibfabricEndpoint& endpoint, uint32_t count,
                                         uint32_t bytes_each, uint64_t access);
  std::span<std::byte> piece(uint32_t index);
  void* descriptor() const;

 private:
  std::vector<std::byte> memory_;
  uint32_t bytes_each_ = 0;
  LibfabricHandle<fid_mr> registration_;
};

/// Buffers into which peers' messages come. All of them are posted, always, but for the one that is
/// being read. Owns them; the endpoint must outlive it.
class LibfabricMailbox {
 public:
  static Result<LibfabricMailbox> open(const LibfabricEndpoint& endpoint, uint32_t count,
                                       uint32_t message_bytes_max);
  /// A message that came.
  std::span<const std::byte> message(const LibfabricContext& context, size_t bytes);
  /// Makes the buffer ready for the next message, after its own was read or failed.
  Result<void> post_again(const LibfabricContext& context);
  /// Tries again for those that the provider did not take at once.
  Result<void> post_waiting();

 private:
  explicit LibfabricMailbox(const LibfabricEndpoint& endpoint) : endpoint_(&endpoint) {}

  const LibfabricEndpoint* endpoint_;
  LibfabricBuffers buffers_;
  std::vector<LibfabricContext> contexts_;
  std::vector<uint32_t> waiting_;
};

}  // namespace tandem::transfer
