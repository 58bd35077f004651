#include "common/threads/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace terrace {
namespace {

TEST(Cpus, AffinityMaskIsCounted) {
  // The mask belongs to the thread, so a thread of our own may narrow it.
  std::size_t counted = 0;
  std::thread([&counted] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    counted = allowed_cpus();
  }).join();
  EXPECT_EQ(counted, 1u);
}

TEST(Cpus, QuotaBelowTheMaskWins_RoundedDownButNotToZero) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / ("cpus_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "cgroup");
  std::ofstream(root / "proc/self/cgroup") << "0::/\n";
  const SystemRoots roots{root / "proc", root / "cgroup"};
  const auto with_quota = [&](const char* text) {
    std::ofstream(root / "cgroup/cpu.max") << text;
    return default_thread_count(roots);
  };
  EXPECT_EQ(with_quota("max 100000"), allowed_cpus());
  EXPECT_EQ(with_quota("190000 100000"), 1u);
  EXPECT_EQ(with_quota("50000 100000"), 1u);
  EXPECT_EQ(with_quota("900000000 100000"), allowed_cpus());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace terrace
