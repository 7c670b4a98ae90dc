// Goal: a process learns the memory it may still take, in and out of containers.
// Method: folders that look like proc and sys of a bare machine, of control groups version 2 and 1,
// of a container that sees a path of its host; then this machine.
#include "cpu/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "io/scratch_folder.h"

namespace tandem::cpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo",
          "MemTotal:        8388608 kB\nMemFree:          102400 kB\n"
          "MemAvailable:    4194304 kB\nBuffers:            1024 kB\n");
  }
  void write(const std::string& name, const std::string& content) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  HostMemory read() const { return read_host_memory(folder_.path()); }

  io::ScratchFolder folder_;
};

TEST_F(HostMemoryTest, WithoutGroupsIsWhatTheMachineHas) {
  EXPECT_EQ(read().machine_bytes, 4096 * kMiB);
  EXPECT_FALSE(read().group_bytes);
  EXPECT_EQ(read().available_bytes(), 4096 * kMiB);
}

TEST_F(HostMemoryTest, VersionTwoLeavesItsLimitLessWhatCannotBeDropped) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "1073741824\n");
  write("sys/fs/cgroup/user/job/memory.current", "734003200\n");  // 700 MiB
  write("sys/fs/cgroup/user/job/memory.stat",
        "anon 1\ninactive_file 104857600\nactive_file 209715200\n");  // 100 and 200 MiB
  EXPECT_EQ(read().group_bytes, (1024 - 400) * kMiB);
  EXPECT_EQ(read().available_bytes(), (1024 - 400) * kMiB);
}

TEST_F(HostMemoryTest, AnOuterGroupMayBeTheTighterOne) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/user/memory.max", "536870912\n");
  write("sys/fs/cgroup/user/memory.current", "12582912\n");
  EXPECT_EQ(read().group_bytes, 500 * kMiB);
}

TEST_F(HostMemoryTest, VersionOneIsReadToo) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/elsewhere\n4:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "134217728\n");
  write("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file 33554432\ntotal_active_file 0\n");
  EXPECT_EQ(read().group_bytes, (256 - 96) * kMiB);
}

TEST_F(HostMemoryTest, AContainerThatSeesItsHostsPathHasTheMountsLimit) {
  write("proc/self/cgroup", "4:memory:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
  EXPECT_EQ(read().group_bytes, 256 * kMiB);
}

TEST_F(HostMemoryTest, ALimitAboveTheMachineChangesNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1099511627776\n");
  EXPECT_EQ(read().available_bytes(), 4096 * kMiB);
}

TEST_F(HostMemoryTest, AGroupThatIsFullLeavesNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1048576\n");
  write("sys/fs/cgroup/memory.current", "2097152\n");
  EXPECT_EQ(read().available_bytes(), 0u);
}

TEST(HostMemory, OfThisMachineIsKnown) {
  EXPECT_GT(read_host_memory().available_bytes(), kMiB);
}

}  // namespace
}  // namespace tandem::cpu
