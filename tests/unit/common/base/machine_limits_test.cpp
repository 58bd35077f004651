#include "common/base/machine_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace terrace {
namespace {

class MachineLimits : public ::testing::Test {
 protected:
  MachineLimits() {
    root_ =
        std::filesystem::path(::testing::TempDir()) /
        ("limits_" + std::to_string(getpid()) + "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    roots_ = {root_ / "proc", root_ / "cgroup"};
    write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:     1000 kB\n");
  }
  ~MachineLimits() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::uint64_t available() const { return memory_available(roots_).value(); }

  std::filesystem::path root_;
  SystemRoots roots_;
};

TEST_F(MachineLimits, NoCgroup_IsTheMachines) {
  EXPECT_EQ(available(), 1000u * 1024);
  EXPECT_FALSE(cpu_quota(roots_).has_value());
}

TEST_F(MachineLimits, Version2_LeastOfAllLevelsCounts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "50\n");
  write("cgroup/a/memory.max", "10000\n");
  write("cgroup/a/memory.current", "4000\n");
  write("cgroup/a/memory.stat", "anon 3000\ninactive_file 1000\n");
  write("cgroup/a/b/cpu.max", "max 100000\n");
  write("cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(available(), 7000u);
  EXPECT_EQ(cpu_quota(roots_), 1.5);
}

TEST_F(MachineLimits, Version2_InsideAContainer_ItsRootCounts) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write("cgroup/memory.max", "9000\n");
  write("cgroup/memory.current", "1000\n");
  EXPECT_EQ(available(), 8000u);
}

TEST_F(MachineLimits, Version1_EachControllerHasItsFolder) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/x\n");
  write("cgroup/memory/x/memory.limit_in_bytes", "5000\n");
  write("cgroup/memory/x/memory.usage_in_bytes", "2000\n");
  write("cgroup/memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 500\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "2000\n");
  write("cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "200000\n");
  write("cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(available(), 3500u);
  EXPECT_EQ(cpu_quota(roots_), 2.0);
}

TEST_F(MachineLimits, UseAboveTheLimit_LeavesNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "1000\n");
  write("cgroup/memory.current", "4000\n");
  EXPECT_EQ(available(), 0u);
}

TEST_F(MachineLimits, NoMemInfo_IsAnErrorThatNamesTheFile) {
  std::filesystem::remove(root_ / "proc/meminfo");
  const auto available = memory_available(roots_);
  ASSERT_FALSE(available.ok());
  EXPECT_EQ(available.error().code(), ErrorCode::kIo);
  EXPECT_NE(available.error().text().find("meminfo"), std::string::npos);
}

TEST(MachineLimitsHere, DescriptorLimit_IsRaisedAsFarAsItIsWanted_AndNeverLowered) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptor_limit(100), 100u);
  EXPECT_EQ(raise_descriptor_limit(80), 100u);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, 100u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(MachineLimitsHere, DescriptorLimit_IsRaisedToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptor_limit(), before.rlim_max);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(MachineLimitsHere, ThisMachineHasMemory) { EXPECT_GT(memory_available().value(), 0u); }

}  // namespace
}  // namespace terrace
