// Goal: a side stream runs its ops on the calling thread alone, however many workers a step has.
// Method: the worker that a loop's body is told, and the thread that it is on.
#include <gtest/gtest.h>

#include <thread>

#include "cpu/cpu_device.h"

namespace tandem::cpu {
namespace {

TEST(SideStream, RunsOnTheCallingThread) {
  const auto device = CpuDevice::create({.threads_count = 3}).value();
  EXPECT_EQ(cpu_stream(*device->make_stream().value()).team().threads_count(), 3);
  const auto stream = device->make_side_stream().value();
  const auto caller = std::this_thread::get_id();
  cpu_stream(*stream).team().parallel_for(1000, [&](int64_t, int worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

}  // namespace
}  // namespace tandem::cpu
