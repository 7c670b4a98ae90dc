#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

/// Sleeping on a word of memory that threads of several processes share (futex). The C++ library's
/// atomic wait only works inside one process.
namespace tandem::io {

/// Sleeps while the low half of `word` is `seen_low`, at most `timeout`. May return at any time:
/// the caller looks at the word again. The comparison and the start of the sleep are one step for
/// wake_sleepers, so a change that is followed by a wake is never slept through.
void sleep_while_equal(const std::atomic<uint64_t>& word, uint32_t seen_low,
                       std::chrono::nanoseconds timeout);

/// Wakes all that sleep on `word`, in every process that maps it.
void wake_sleepers(const std::atomic<uint64_t>& word);

}  // namespace tandem::io
