#include "comm/symmetric_heap.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/spin_pause.h"
#include "io/shared_word.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAlignment = 64;  // a cache line
constexpr int kAnyRank = -1;
/// The longest sleep between two looks at the group's health. Nobody wakes a sleeper because of a
/// death; this bounds how late it notices, at four wake-ups a second.
constexpr std::chrono::milliseconds kSleep{250};
constexpr int kSpinsPerClockRead = 32;

size_t round_up(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

/// How nobody sleeps through a signal: the signaller writes the epoch and then reads the number of
/// sleepers; the waiter adds itself to the sleepers and then reads the epoch. All four are
/// sequentially consistent, so at least one of the two sees the other. A wake between the waiter's
/// read and its sleep is caught by the kernel, which compares the word again.
struct alignas(kAlignment) SymmetricHeap::FlagWord {
  std::atomic<uint64_t> epoch;
  std::atomic<uint32_t> sleepers;
};

SymmetricHeap::SymmetricHeap(Options options, std::span<std::byte> memory,
                             const GroupHealth& health)
    : options_(options),
      memory_(memory),
      heap_bytes_(memory.size() / static_cast<size_t>(options.ranks_count)),
      stride_bytes_(heap_bytes_),
      health_(health) {
  TANDEM_CHECK(options.ranks_count >= 1, "a group has a rank");
  TANDEM_CHECK(options.rank >= 0 && options.rank < options.ranks_count, "a rank of the group");
  TANDEM_CHECK(heap_bytes_ * static_cast<size_t>(options.ranks_count) == memory.size(),
               "heaps of equal size");
  TANDEM_CHECK(heap_bytes_ % kAlignment == 0, "heaps start at a cache line");
}

SymmetricHeap::SymmetricHeap(Options options, std::span<std::byte> memory,
                             const GroupHealth& health, SymmetricHeap& whole, const Subgroup& group)
    : options_(options),
      memory_(memory),
      heap_bytes_(whole.heap_bytes_),
      stride_bytes_(whole.stride_bytes_ * static_cast<size_t>(group.step)),
      health_(health),
      whole_(&whole),
      group_(group) {}

std::unique_ptr<SymmetricHeap> SymmetricHeap::subgroup(const Subgroup& group) {
  const int own = rank() - group.first_rank;
  TANDEM_CHECK(group.first_rank >= 0 && group.step >= 1 && own >= 0 && own % group.step == 0 &&
                   own / group.step < group.ranks_count &&
                   group.first_rank + (group.ranks_count - 1) * group.step < ranks_count(),
               "a subgroup that this rank is in");
  Options options = options_;
  options.rank = own / group.step;
  options.ranks_count = group.ranks_count;
  const auto memory = memory_.subspan(static_cast<size_t>(group.first_rank) * stride_bytes_);
  return std::unique_ptr<SymmetricHeap>(new SymmetricHeap(options, memory, health_, *this, group));
}

int SymmetricHeap::named(int rank) const {
  return whole_ == nullptr ? rank : whole_->named(group_.first_rank + rank * group_.step);
}

Result<size_t> SymmetricHeap::allocate(size_t bytes) {
  if (whole_ != nullptr) return whole_->allocate(bytes);
  if (bytes > bytes_available() || round_up(bytes) > bytes_available()) {
    return make_error(Code::kResourceExhausted,
                      fmt::format("rank {} wants {} bytes of its heap, {} of {} are left; make the "
                                  "heap of all ranks larger",
                                  rank(), bytes, bytes_available(), heap_bytes_));
  }
  const size_t offset = used_bytes_;
  used_bytes_ += round_up(bytes);
  return offset;
}

Result<Flag> SymmetricHeap::allocate_flags(int count, WaitKind kind) {
  return Flag{TANDEM_TRY(allocate(sizeof(FlagWord) * static_cast<size_t>(count))), kind};
}

Flag SymmetricHeap::flag_at(Flag first, int index) {
  return Flag{first.offset + sizeof(FlagWord) * static_cast<size_t>(index), first.kind};
}

std::byte* SymmetricHeap::address(int rank, size_t offset) const {
  TANDEM_DCHECK(rank >= 0 && rank < options_.ranks_count, "a rank of the group");
  return memory_.data() + static_cast<size_t>(rank) * stride_bytes_ + offset;
}

SymmetricHeap::FlagWord& SymmetricHeap::word(int rank, Flag flag) const {
  return *reinterpret_cast<FlagWord*>(address(rank, flag.offset));
}

void SymmetricHeap::put(int rank, size_t offset, std::span<const std::byte> source) {
  TANDEM_CHECK(offset <= bytes_used() && source.size() <= bytes_used() - offset,
               "a put stays inside what was allocated");
  if (source.empty()) return;
  std::memcpy(address(rank, offset), source.data(), source.size());
  if (rank != options_.rank) {
    // One thread puts, so nothing is lost between the halves; an atomic addition would first wait
    // for every store of the copy above.
    counters_.bytes_put.store(counters_.bytes_put.load(std::memory_order_relaxed) + source.size(),
                              std::memory_order_relaxed);
  }
}

void SymmetricHeap::signal(int rank, Flag flag, uint64_t epoch) {
  FlagWord& target = word(rank, flag);
  uint64_t seen = target.epoch.load(std::memory_order_relaxed);
  while (seen < epoch && !target.epoch.compare_exchange_weak(seen, epoch)) {
  }
  if (target.sleepers.load() > 0) io::wake_sleepers(target.epoch);
  counters_.signals.fetch_add(1, std::memory_order_relaxed);
}

uint64_t SymmetricHeap::epoch_of(Flag flag) const {
  return word(options_.rank, flag).epoch.load(std::memory_order_acquire);
}

bool SymmetricHeap::has_arrived(Flag flag, uint64_t epoch) const {
  return epoch_of(flag) >= epoch;
}

Result<void> SymmetricHeap::wait(Flag flag, uint64_t epoch, int source) {
  FlagWord& own = word(options_.rank, flag);
  if (own.epoch.load(std::memory_order_acquire) >= epoch) return {};
  const auto start = Clock::now();
  Result<void> result = spin_for(own, epoch) ? Result<void>() : sleep_for(own, flag, epoch, source);
  counters_of_whole().wait_ns[static_cast<size_t>(flag.kind)].fetch_add(
      static_cast<uint64_t>((Clock::now() - start).count()), std::memory_order_relaxed);
  return result;
}

Result<void> SymmetricHeap::wait_idle(Flag flag, uint64_t epoch) {
  if (has_arrived(flag, epoch)) return {};
  return sleep_for(word(options_.rank, flag), flag, epoch, kAnyRank);
}

bool SymmetricHeap::spin_for(const FlagWord& word, uint64_t epoch) const {
  const auto arrived = [&] { return word.epoch.load(std::memory_order_acquire) >= epoch; };
  const auto end = Clock::now() + options_.spin;
  while (Clock::now() < end) {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (arrived()) return true;
      spin_pause();
    }
  }
  for (int i = 0; i < options_.yields_count; ++i) {
    if (arrived()) return true;
    std::this_thread::yield();
  }
  return arrived();
}

Result<void> SymmetricHeap::sleep_for(FlagWord& word, Flag flag, uint64_t epoch, int source) {
  const std::chrono::nanoseconds sleep =
      source == kAnyRank ? kSleep : std::min(kSleep, options_.late_after);
  const auto start = Clock::now();
  auto late = start + options_.late_after;
  while (true) {
    TANDEM_TRY(check_peers(word, epoch, source));
    word.sleepers.fetch_add(1);
    const uint64_t seen = word.epoch.load();
    if (seen < epoch) io::sleep_while_equal(word.epoch, static_cast<uint32_t>(seen), sleep);
    word.sleepers.fetch_sub(1);
    if (word.epoch.load(std::memory_order_acquire) >= epoch) return {};
    if (source != kAnyRank && Clock::now() >= late) {
      const auto waited = Clock::now() - start;
      spdlog::warn("comm_rank_late rank={} late=\"{}\" collective={} waited_ms={}",
                   health_.number(named(rank())), health_.name(named(source)), name_of(flag.kind),
                   std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
      late = Clock::now() + waited;
    }
  }
}

Result<void> SymmetricHeap::check_peers(const FlagWord& word, uint64_t epoch, int source) const {
  if (health_.has_failed()) {
    return with_context(*health_.failure(),
                        fmt::format("rank {} stops waiting", health_.number(named(rank()))));
  }
  if (!health_.has_losses()) return {};
  const int departed = source == kAnyRank                    ? health_.first_departed()
                       : health_.has_departed(named(source)) ? named(source)
                                                             : -1;
  // Departure is published after the last signal: whoever sees the first sees the second.
  if (departed < 0 || word.epoch.load(std::memory_order_acquire) >= epoch) return {};
  return make_error(Code::kUnavailable,
                    fmt::format("rank {} waits for {}, which has left the group",
                                health_.number(named(rank())), health_.name(departed)));
}

}  // namespace tandem::comm
