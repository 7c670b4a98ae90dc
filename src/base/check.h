#pragma once

#include <string_view>

namespace tandem::internal {
/// Prints the failed condition and ends the process.
[[noreturn]] void check_failed(const char* condition, std::string_view what, const char* file,
                               int line);
}  // namespace tandem::internal

/// Stops the process when a defect of this program shows: `TANDEM_CHECK(a == b, "why")`. Stays on
/// in release. Never for what a client, peer, file or device can cause: that is an Error.
#define TANDEM_CHECK(condition, ...)                                                             \
  (static_cast<bool>(condition)                                                                  \
       ? static_cast<void>(0)                                                                    \
       : ::tandem::internal::check_failed(#condition, ::std::string_view{__VA_ARGS__}, __FILE__, \
                                          __LINE__))

/// The same for inner loops: only in builds without NDEBUG.
#ifdef NDEBUG
#define TANDEM_DCHECK(condition, ...) static_cast<void>(sizeof((condition) ? 1 : 0))
#else
#define TANDEM_DCHECK(condition, ...) TANDEM_CHECK(condition, __VA_ARGS__)
#endif
