#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem::internal {

void check_failed(const char* condition, std::string_view what, const char* file, int line) {
  // stderr directly: the logger may be what failed.
  std::fprintf(stderr, "check failed: %s %.*s (%s:%d)\n", condition, static_cast<int>(what.size()),
               what.data(), file, line);
  std::abort();
}

}  // namespace tandem::internal
