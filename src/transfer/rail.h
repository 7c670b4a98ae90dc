#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "device/device.h"

namespace tandem::transfer {

using RailPeerId = StrongId<struct RailPeerTag>;      ///< A peer of one rail; never used again.
using RailRegionId = StrongId<struct RailRegionTag>;  ///< A registration; never used again.

/// Memory to register. Borrowed: it outlives its registrations. `data` is an address of `device`.
struct MemoryBlock {
  void* data = nullptr;
  uint64_t bytes = 0;
  DeviceKind device = DeviceKind::kCpu;
};

/// How a peer names a registration. The address of byte n is `base` + n: base is 0 where a
/// provider counts from the start of the region and the virtual address where it wants that one
/// (FI_MR_VIRT_ADDR). The key is 64 random bits where the provider lets us choose it.
struct RemoteKey {
  uint64_t key = 0;
  uint64_t base = 0;
  bool operator==(const RemoteKey&) const = default;
};

/// kSource: our writes read from it. kTarget: who knows the key may write to it.
enum class Access { kSource, kTarget };

struct Registration {
  RailRegionId id;
  RemoteKey remote;  ///< Only of kTarget.
};

/// One write. `bytes` may be 0; the target must name a live registration even then. Ranges inside
/// the two regions are the caller's duty.
struct RailWrite {
  RailPeerId peer;
  RailRegionId source;  ///< Of Access::kSource; not looked at when bytes is 0.
  uint64_t source_offset = 0;
  RemoteKey target;
  uint64_t target_offset = 0;  ///< To be added to target.base.
  uint64_t bytes = 0;          ///< At most limits().write_bytes_max.
  std::optional<uint32_t> immediate;
  uint64_t token = 0;  ///< Comes back with the end of the write.
};

/// How a write or a message ended.
enum class RailOutcome {
  /// All bytes are visible at the target (delivery complete). The event of its immediate is ready
  /// there: the next poll reports it, or reports as many as it may.
  kDelivered,
  kNotSent,   ///< Surely nothing of it reached the target, and nothing will. The path is lost.
  kRejected,  ///< The target refused it (key closed or unknown); nothing of it landed or will.
  /// Any part of it landed, or may until the target has closed the registration, and so may, behind
  /// all bytes, its immediate. The path is lost. Always an allowed answer.
  kUnknown,
};

enum class Post {
  kAccepted,  ///< Ends in exactly one event.
  kFull,      ///< Not taken, and no failure: try again after a poll.
};

struct RailLimits {
  uint64_t write_bytes_max = 0;
  uint32_t message_bytes_max = 0;  ///< At least kMessageBytesMin.
  uint32_t posts_max = 0;  ///< Writes and messages under way, all peers together; a hint at least.
};
inline constexpr uint32_t kMessageBytesMin = 4096;

/// Takes what a poll found. No function of it may call the rail.
class RailEvents {
 public:
  virtual ~RailEvents() = default;
  /// A write or message ended; `error` is null when delivered, and else says rail, peer, phase
  /// (connect, write, message) and what the provider said.
  virtual void post_ended(uint64_t token, RailOutcome outcome, const Error* error) = 0;
  /// The bytes of the write that carried it are visible; nothing is said about any other write.
  virtual void immediate_arrived(uint32_t immediate) = 0;
  /// `bytes` live until this returns. Who sent them is not known unless they say so.
  virtual void message_arrived(std::span<const std::byte> bytes) = 0;
  /// After close_region(): the promise made there holds from here on.
  virtual void region_closed(RailRegionId region) = 0;
  /// After close_peer(): every post to it has ended.
  virtual void peer_closed(RailPeerId peer) = 0;
  /// The rail is dead as a whole; reported once. Its posts still end, its closings still come.
  virtual void rail_failed(const Error& error) = 0;
};

/// One network endpoint (NIC) of a rank. Owned and called by one thread; has no thread of its own,
/// never blocks, and moves only inside poll(). Nothing is ordered: neither two writes to one peer,
/// nor an immediate and another write, nor messages.
///
/// A path (this rail to one peer) connects at its first post. It is lost at the first kNotSent or
/// kUnknown: the rail ends all posts on it likewise, accepts further ones and ends them kNotSent.
/// It stays lost; a peer that returns is added anew.
class Rail {
 public:
  virtual ~Rail() = default;

  /// For messages: "tcp;ofi_rxm eth0".
  virtual const std::string& name() const = 0;
  virtual const RailLimits& limits() const = 0;
  /// Whether closing a registration keeps the promise of close_region(). False for shm.
  virtual bool can_fence() const = 0;
  /// What a peer needs for add_peer(); at most 256 bytes.
  virtual std::vector<std::byte> address() const = 0;
  /// Does not connect yet. kInvalidArgument when these are no address of this provider; adding the
  /// same address again makes another peer.
  virtual Result<RailPeerId> add_peer(std::span<const std::byte> address) = 0;
  /// Ends every post to the peer (kUnknown, or better if it is known), then reports peer_closed();
  /// the source memory of those posts is no longer read from then on. May cut what it sends (tcp).
  virtual void close_peer(RailPeerId peer) = 0;

  /// Several registrations of the same memory are normal: one for each peer that may write.
  virtual Result<Registration> register_memory(const MemoryBlock& memory, Access access) = 0;
  /// Names the peer that will be told a target's key. Over tcp only the end of its connection stops
  /// a write that has begun: close_region() loses the path to this peer, to all if none was named.
  virtual void set_writer(RailRegionId, RailPeerId) {}
  /// Always succeeds, later: region_closed(). kTarget: if can_fence(), no byte of the memory
  /// changes any more through this key from that event on, not even by a write that had begun, and
  /// writes with it bring no immediate. kSource: takes effect at once; no post may be using it.
  virtual void close_region(RailRegionId region) = 0;

  /// Peer and source region must be known and not closed. Errors come as events.
  [[nodiscard]] virtual Post post_write(const RailWrite& write) = 0;
  /// The bytes are copied before this returns. 1..message_bytes_max bytes.
  [[nodiscard]] virtual Post post_message(RailPeerId peer, std::span<const std::byte> bytes,
                                          uint64_t token) = 0;

  /// Moves everything forward and reports at most `events_max` events; how many there were.
  /// Receives are always posted: a rail takes messages and immediates from its creation on.
  virtual uint32_t poll(RailEvents& events, uint32_t events_max) = 0;

  /// Becomes readable when poll() has something to do; -1: it has to be polled.
  virtual int wait_descriptor() const = 0;
  /// To be called right before sleeping on the descriptor. False: poll first, do not sleep.
  virtual bool may_sleep() = 0;
};

}  // namespace tandem::transfer
