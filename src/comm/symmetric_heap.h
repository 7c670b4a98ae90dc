#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "comm/group_health.h"
#include "comm/wait_kind.h"

namespace tandem::comm {

/// A 64-bit epoch at one place of every rank's heap. Starts at 0 and only ever grows; it is never
/// reset. One rank writes one rank's copy, unless all writers of a moment write the same value.
struct Flag {
  size_t offset = 0;
  WaitKind kind = WaitKind::kOther;
};

/// What one rank has moved and waited since the start. Self-puts are local copies, not counted.
struct HeapCounters {
  std::atomic<uint64_t> bytes_put{0};
  std::atomic<uint64_t> signals{0};
  /// By WaitKind, in its subgroups too. Idling is not waiting.
  std::array<std::atomic<uint64_t>, kWaitKindsCount> wait_ns{};
};

/// One rank's view of N heaps of equal size, one per rank, all mapped here. Every rank makes the
/// same allocations in the same order, so an offset means the same object everywhere.
///
/// Collectives use put, signal and wait only, and read nothing but their own heap: a link to a
/// peer may later be a network. Owned by a group (thread_group.h, process_group.h). Used by one
/// thread, the rank's; `signal`, `epoch_of` and the counters may be used from any.
///
/// Orders: signal is a release of everything this thread put before it, wait is the matching
/// acquire. Puts are not ordered among each other, and nothing else is.
class SymmetricHeap {
 public:
  /// Longer than any step, shorter than a user's patience.
  static constexpr std::chrono::milliseconds kLateAfter{2000};
  struct Options {
    int rank = 0;
    int ranks_count = 1;
    /// A wait first spins this long (the peer runs on another core and is about to signal), then
    /// offers its core this many times (the peer wants this core), then sleeps.
    std::chrono::microseconds spin{20};
    int yields_count = 8;
    /// A wait that takes longer is logged with the name of the late rank, and again at 2x, 4x, ...
    std::chrono::milliseconds late_after = kLateAfter;
  };
  /// `memory` holds the heaps side by side in rank order, zeroed; it and `health` outlive this.
  SymmetricHeap(Options options, std::span<std::byte> memory, const GroupHealth& health);
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  /// `ranks_count` ranks `step` apart, this one among them, as a group of their own: ranks count
  /// from 0 there. It takes its memory from this heap, which outlives it, so all ranks of this heap
  /// make alike subgroups, with the same allocations in each. For the same thread.
  struct Subgroup {
    int first_rank = 0;
    int ranks_count = 1;
    int step = 1;
  };
  std::unique_ptr<SymmetricHeap> subgroup(const Subgroup& group);

  int rank() const { return options_.rank; }
  int ranks_count() const { return options_.ranks_count; }
  size_t heap_bytes() const { return heap_bytes_; }
  size_t bytes_available() const { return heap_bytes_ - bytes_used(); }
  size_t bytes_used() const { return whole_ == nullptr ? used_bytes_ : whole_->bytes_used(); }
  const GroupHealth& health() const { return health_; }
  const HeapCounters& counters() const { return counters_; }

  /// An offset, a multiple of 64, the same on every rank. Contents are zero. Never freed.
  Result<size_t> allocate(size_t bytes);
  /// `count` flags; the i-th is flag_at(first, i). Each has a cache line of its own.
  Result<Flag> allocate_flags(int count, WaitKind kind = WaitKind::kOther);
  static Flag flag_at(Flag first, int index);

  /// This rank's own memory at an offset.
  template <typename T>
  T* local(size_t offset) const {
    return reinterpret_cast<T*>(address(options_.rank, offset));
  }

  /// Copies bytes into a rank's heap. Visible there after a later signal to that rank was waited
  /// for. `source` may be reused at once.
  void put(int rank, size_t offset, std::span<const std::byte> source);

  /// Raises the flag of `rank` to `epoch` (a lower one is ignored) and wakes who waits for it.
  void signal(int rank, Flag flag, uint64_t epoch);

  /// Waits until this rank's flag is at least `epoch`; `source` is the rank that will signal it.
  /// kUnavailable, naming rank and host, at most a second after a rank's death became known, or
  /// when `source` has left the group without signalling. A late rank is logged and waited for.
  Result<void> wait(Flag flag, uint64_t epoch, int source);

  /// Waits without end and without a log line for a flag that anyone may signal: an idle group.
  /// kUnavailable, as above, when a rank dies or leaves.
  Result<void> wait_idle(Flag flag, uint64_t epoch);

  /// How far this rank's flag has come. Acquires like a wait.
  uint64_t epoch_of(Flag flag) const;

  /// Whether a wait would return at once. Acquires like one.
  bool has_arrived(Flag flag, uint64_t epoch) const;

 private:
  struct FlagWord;

  SymmetricHeap(Options options, std::span<std::byte> memory, const GroupHealth& health,
                SymmetricHeap& whole, const Subgroup& group);
  /// Of a rank here, its number in the group that has no parent.
  int named(int rank) const;
  HeapCounters& counters_of_whole() { return whole_ ? whole_->counters_of_whole() : counters_; }
  std::byte* address(int rank, size_t offset) const;
  FlagWord& word(int rank, Flag flag) const;
  bool spin_for(const FlagWord& word, uint64_t epoch) const;
  Result<void> sleep_for(FlagWord& word, Flag flag, uint64_t epoch, int source);
  Result<void> check_peers(const FlagWord& word, uint64_t epoch, int source) const;

  const Options options_;
  const std::span<std::byte> memory_;
  const size_t heap_bytes_;
  const size_t stride_bytes_;  // from one rank's heap to the next one's
  const GroupHealth& health_;
  size_t used_bytes_ = 0;           // of a heap that is no subgroup
  SymmetricHeap* whole_ = nullptr;  // of a subgroup: the heap it takes memory from
  Subgroup group_;                  // of a subgroup
  HeapCounters counters_;
};

}  // namespace tandem::comm
