// Goal: a process starts no more threads than it may run at once, in and out of containers.
// Method: folders that look like the control groups of a bare machine, of version 2 and 1, and of a
// container that sees its host's path; then the affinity of a thread of this process.
#include "cpu/host_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "io/scratch_folder.h"

namespace tandem::cpu {
namespace {

class HostCoresTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  std::optional<double> quota() const { return read_host_cores(folder_.path()).quota; }

  io::ScratchFolder folder_;
};

TEST_F(HostCoresTest, WithoutGroupsThereIsNoQuota) {
  EXPECT_FALSE(quota());
}

TEST_F(HostCoresTest, VersionTwoHasOneFile) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota());
}

TEST_F(HostCoresTest, AnOuterGroupMayBeTheTighterOne) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/user/cpu.max", "30000 10000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(HostCoresTest, VersionOneHasTwoFilesAndASharedController) {
  write("proc/self/cgroup", "4:memory:/elsewhere\n9:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "25000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(HostCoresTest, AContainerThatSeesItsHostsPathHasTheMountsQuota) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST(HostCores, RoundsAQuotaDownButNotToNothing) {
  EXPECT_EQ((HostCores{.allowed = 8}).usable(), 8);
  EXPECT_EQ((HostCores{.allowed = 8, .quota = 2.9}).usable(), 2);
  EXPECT_EQ((HostCores{.allowed = 8, .quota = 0.3}).usable(), 1);
  EXPECT_EQ((HostCores{.allowed = 2, .quota = 16}).usable(), 2);
}

TEST(HostCores, FollowsTheAffinity) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(read_host_cores().allowed, 1);
    EXPECT_EQ(read_host_cores().usable(), 1);
  }).join();
}

}  // namespace
}  // namespace tandem::cpu
