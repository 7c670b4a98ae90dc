#include "comm/heap_options.h"

#include <fmt/format.h>

#include <thread>

namespace tandem::comm {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

Result<size_t> mapped_heap_bytes(int ranks_count, size_t heap_bytes) {
  if (ranks_count < 1 || ranks_count > kRanksMax) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} ranks: a group has 1 to {}", ranks_count, kRanksMax));
  }
  if (heap_bytes == 0 || heap_bytes > kHeapBytesMax) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("a heap of {} bytes: use 1 to {}", heap_bytes, kHeapBytesMax));
  }
  return (heap_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

SymmetricHeap::Options wait_options(int rank, int ranks_count,
                                    std::chrono::milliseconds late_after) {
  SymmetricHeap::Options options{
      .rank = rank, .ranks_count = ranks_count, .late_after = late_after};
  if (ranks_count > static_cast<int>(std::thread::hardware_concurrency())) {
    options.spin = std::chrono::microseconds(0);
  }
  return options;
}

}  // namespace tandem::comm
