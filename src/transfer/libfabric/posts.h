#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transfer/libfabric/mailbox.h"
#include "transfer/libfabric/regions.h"
#include "transfer/rail.h"

namespace tandem::transfer {

/// Writes and messages from their acceptance to their end. Of fixed size, so that nothing is
/// allocated on the way, but for what a dead peer leaves behind. Owns the copies of messages.
class LibfabricPosts {
 public:
  enum class State {
    kFree,
    kWaiting,    ///< accepted, not with the provider
    kUnderWay,   ///< the provider has it
    kAbandoned,  ///< ended for the caller, but the provider still has it
    kRetired,    ///< the same, and maybe for ever
  };
  static constexpr uint32_t kBatchMax = 16;
  static constexpr uint32_t kAlone = ~uint32_t{0};
  struct Post {
    State state = State::kFree;
    bool is_message = false;
    bool has_begun = false;  ///< the provider took a part of it at least
    /// That ends with this one; none: kAlone.
    uint32_t next_of_batch = kAlone;
    uint32_t message_bytes = 0;
    RailWrite write;  ///< of a message only peer and token
    // Its bytes, and its immediate where that is an operation of its own.
    LibfabricContext contexts[2];
  };

  static Result<LibfabricPosts> create(const LibfabricEndpoint& endpoint, uint32_t posts_max,
                                       uint32_t message_bytes_max);

  bool is_full() const { return free_.empty(); }
  uint32_t add_write(const RailWrite& write);
  uint32_t add_message(RailPeerId peer, std::span<const std::byte> bytes, uint64_t token);
  void remove(uint32_t index);
  /// The same for one that the provider will never end, nor surely never: its place stays taken.
  void retire(uint32_t index);

  Post& at(uint32_t index) { return posts_[index]; }
  uint32_t count() const { return static_cast<uint32_t>(posts_.size()); }

  /// Hands a post to the provider: 0, -FI_EAGAIN (again later, as a whole), or an error.
  ssize_t submit(uint32_t index, fi_addr_t peer, const LibfabricRegions& regions);
  /// The same for writes to one peer over one connection, which keeps their order: all bytes, then
  /// one immediate for each run of equal ones, with their number. Only the last operation is
  /// confirmed, and ends the first post, which names the others. Taken as a whole or not at all:
  /// the rest of a half could go another way, over a new connection, and tell of bytes that were
  /// lost with the old one.
  ssize_t submit_batch(std::span<const uint32_t> indices, fi_addr_t peer,
                       const LibfabricRegions& regions);
  /// What an arrival's 64 bits say when the writer batches: an immediate, and how often.
  struct Arrivals {
    uint32_t immediate = 0;
    uint32_t count = 1;
  };
  static Arrivals arrivals_of(uint64_t data);

 private:
  explicit LibfabricPosts(const LibfabricEndpoint& endpoint) : endpoint_(&endpoint) {}
  uint32_t take();
  void append(uint32_t buffer);
  std::span<std::byte> buffer(uint32_t index) { return buffers_.piece(buffer_of_[index]); }
  ssize_t submit_message(uint32_t index, fi_addr_t peer);
  struct Part {
    uint64_t bytes = 0;
    uint64_t data = 0;
    uint64_t flags = 0;
    LibfabricContext* context = nullptr;
  };
  ssize_t submit_part(uint32_t index, const Part& part, fi_addr_t peer,
                      const LibfabricRegions& regions);
  ssize_t submit_write(uint32_t index, fi_addr_t peer, const LibfabricRegions& regions);

  const LibfabricEndpoint* endpoint_;
  LibfabricBuffers buffers_;         // one piece for each post that is not retired
  std::deque<Post> posts_;           // contexts must not move
  std::vector<uint32_t> buffer_of_;  // [posts]
  std::vector<uint32_t> free_;
};

}  // namespace tandem::transfer
