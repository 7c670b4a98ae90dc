#include "cpu/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace tandem::cpu {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* allocate_large(size_t bytes) {
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data != nullptr && alignment == kHugePage) {
    // A last page that is hardly used stays in small ones. Refused (no such kernel): all do.
    (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return data;
}

}  // namespace tandem::cpu
