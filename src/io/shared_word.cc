#include "io/shared_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace tandem::io {
namespace {

// A futex is 32 bits wide; on a little-endian machine the word's address is that of its low half.
static_assert(std::endian::native == std::endian::little);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

}  // namespace

void sleep_while_equal(const std::atomic<uint64_t>& word, uint32_t seen_low,
                       std::chrono::nanoseconds timeout) {
  const timespec limit{static_cast<time_t>(timeout.count() / 1'000'000'000),
                       static_cast<long>(timeout.count() % 1'000'000'000)};
  // Every outcome (woken, changed before, timed out, interrupted) means the same: look again.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen_low, &limit, nullptr, 0);
}

void wake_sleepers(const std::atomic<uint64_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tandem::io
