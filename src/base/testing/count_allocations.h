#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

/// Replaces the global operators of the program that includes this, once, by counting ones.
namespace tandem {
inline std::atomic<uint64_t> allocations_count{0};
}  // namespace tandem

// Not inlined: GCC takes a new and a delete of which it can see only one side for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++tandem::allocations_count;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort takes this one.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++tandem::allocations_count;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
