// The choice of CPUs over made-up machines: hwloc's synthetic topologies, quotas and neighbours of the test's own.
#include "common/threads/cpus.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "common/threads/background.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace {
namespace {

CpuSet all(std::uint32_t n) {
  CpuSet cpus(n);
  std::iota(cpus.begin(), cpus.end(), 0u);
  return cpus;
}

MachineCpus machine(const std::string& description, CpuSet allowed, CpuSet offline = {}) {
  return {synthetic_topology(description, std::move(allowed), std::move(offline)).value(), std::nullopt, {}};
}

CpuChoice choose(const MachineCpus& machine, const CpuRequest& request = {}) {
  auto choice = choose_cpus(machine, request);
  EXPECT_TRUE(choice.ok()) << choice.error().text();
  return choice.ok() ? *choice : CpuChoice();
}

std::string refusal(const MachineCpus& machine, const std::string& list) {
  const auto choice = choose_cpus(machine, {.threads = {}, .cpu_list = list});
  if (choice.ok()) return "accepted";
  EXPECT_EQ(choice.error().code(), ErrorCode::kInvalidArgument);
  return choice.error().text();
}

using Cpus = std::vector<std::uint32_t>;

// Four cores of two hardware threads, numbered as Linux does on most machines: siblings are n and n + 4.
const char* const kSmt2 = "package:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)";

TEST(CpuChoice, OneWorkerForEachPhysicalCore) {
  const CpuChoice choice = choose(machine(kSmt2, all(8)));
  EXPECT_EQ(choice.n_threads, 4u);
  EXPECT_EQ(choice.pinned, (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(choice.usable, all(8));
  EXPECT_EQ(choice.waiting, Waiting::kSpinThenPark);
  EXPECT_EQ(choice.describe(), "4 threads, pinned to CPUs 0-3: one for each of 4 physical cores; waits spin then park");
  EXPECT_EQ(choose(machine("package:1 core:4 pu:2", all(8))).pinned, (Cpus{0, 2, 4, 6})) << "siblings side by side";
}

TEST(CpuChoice, SecondHardwareThreads_OnlyWhenMoreAreAskedFor) {
  EXPECT_EQ(choose(machine(kSmt2, all(8)), {.threads = 2, .cpu_list = {}}).pinned, (Cpus{0, 1}));
  const CpuChoice six = choose(machine(kSmt2, all(8)), {.threads = 6, .cpu_list = {}});
  EXPECT_EQ(six.pinned, (Cpus{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(six.why, "--threads, second hardware threads beside 4 physical cores");
  EXPECT_EQ(choose(machine(kSmt2, all(8)), {.threads = 8, .cpu_list = {}}).waiting, Waiting::kSpinThenPark);
}

TEST(CpuChoice, MoreThreadsThanCpus_AreNotPinnedAndBlock) {
  const CpuChoice choice = choose(machine(kSmt2, all(8)), {.threads = 9, .cpu_list = {}});
  EXPECT_EQ(choice.n_threads, 9u);
  EXPECT_EQ(choice.pinned, Cpus());
  EXPECT_EQ(choice.cpus(), all(8));
  EXPECT_EQ(choice.waiting, Waiting::kBlock);
  EXPECT_EQ(choice.describe(), "9 threads, anywhere on CPUs 0-7: --threads, more than the 8 CPUs allowed; waits block");
}

TEST(CpuChoice, TwoPackages_TheFirstIsFilledFirst) {
  const MachineCpus two = machine("package:2 core:2 pu:2", all(8));
  EXPECT_EQ(choose(two).pinned, (Cpus{0, 2, 4, 6}));
  EXPECT_EQ(choose(two, {.threads = 2, .cpu_list = {}}).pinned, (Cpus{0, 2}));
  EXPECT_EQ(choose(two, {.threads = 5, .cpu_list = {}}).pinned, (Cpus{0, 2, 4, 6, 1}));
}

TEST(CpuChoice, MaskIsKept_ACoreCountsByWhatIsAllowedOfIt) {
  // Of core 0 only the second hardware thread, of core 2 both, nothing of the others.
  const CpuChoice choice = choose(machine(kSmt2, {2, 4, 6}));
  EXPECT_EQ(choice.pinned, (Cpus{4, 2}));
  EXPECT_EQ(choice.why, "one for each of 2 physical cores");
  EXPECT_EQ(choose(machine(kSmt2, {2, 4, 6}), {.threads = 3, .cpu_list = {}}).pinned, (Cpus{4, 2, 6}));
}

TEST(CpuChoice, MaskOfOne_OneThreadThatBlocks) {
  const CpuChoice choice = choose(machine(kSmt2, {5}));
  EXPECT_EQ(choice.pinned, (Cpus{5}));
  EXPECT_EQ(choice.waiting, Waiting::kBlock);
  EXPECT_EQ(choice.describe(), "1 thread, pinned to CPU 5: the one physical core allowed; waits block");
}

TEST(CpuChoice, OneCoreWithTwoHardwareThreads_Blocks) {
  EXPECT_EQ(choose(machine(kSmt2, {1, 5})).waiting, Waiting::kBlock)
      << "a spinner takes half of what its sibling needs";
  const CpuChoice both = choose(machine(kSmt2, {1, 5}), {.threads = 2, .cpu_list = {}});
  EXPECT_EQ(both.pinned, (Cpus{1, 5}));
  EXPECT_EQ(both.waiting, Waiting::kBlock);
}

TEST(CpuChoice, OneThreadOfMany_MaySpin) {
  EXPECT_EQ(choose(machine("core:4 pu:1", all(4)), {.threads = 1, .cpu_list = {}}).waiting, Waiting::kSpinThenPark);
}

TEST(CpuChoice, OfflineCores_AreLeftOut) {
  // Linux takes them from the mask as well.
  const CpuChoice choice = choose(machine(kSmt2, {0, 1, 3, 4, 5, 7}, {2, 6}));
  EXPECT_EQ(choice.pinned, (Cpus{0, 1, 3}));
  const CpuChoice half = choose(machine(kSmt2, {0, 1, 2, 3, 5, 6, 7}, {4}));
  EXPECT_EQ(half.pinned, (Cpus{0, 1, 2, 3})) << "its sibling is still a core";
}

TEST(CpuChoice, QuotaBelowTheCores_CountsWholeCpus_AndLeavesThePlaceToTheKernel) {
  MachineCpus m = machine("core:4 pu:1", all(4));
  m.quota = 1.5;
  CpuChoice choice = choose(m);
  EXPECT_EQ(choice.n_threads, 1u);
  EXPECT_EQ(choice.pinned, Cpus()) << "other containers on these CPUs would begin with the same";
  EXPECT_EQ(choice.waiting, Waiting::kBlock);
  EXPECT_EQ(choice.describe(),
            "1 thread, anywhere on CPUs 0-3: the quota is 1.5 CPUs, of 4 physical cores; waits block");
  m.quota = 0.2;
  EXPECT_EQ(choose(m).n_threads, 1u);
  m.quota = 2.0;
  choice = choose(m);
  EXPECT_EQ(choice.n_threads, 2u);
  EXPECT_EQ(choice.waiting, Waiting::kSpinThenPark);
  EXPECT_EQ(choose(m, {.threads = 3, .cpu_list = {}}).waiting, Waiting::kBlock) << "spinning would use up the quota";
  for (const double enough : {4.0, 64.0, 1e300}) {
    m.quota = enough;
    EXPECT_EQ(choose(m).pinned, (Cpus{0, 1, 2, 3})) << enough;
  }
  m.quota = 2.0;
  EXPECT_EQ(choose(m, {.threads = {}, .cpu_list = "1,3"}).pinned, (Cpus{1, 3})) << "the user has named them";
}

TEST(CpuChoice, QuotaOfOneCpu_OnItsOwnCpu_IsPinned) {
  MachineCpus m = machine("core:4 pu:1", {2});
  m.quota = 0.5;
  EXPECT_EQ(choose(m).pinned, (Cpus{2}));
}

TEST(CpuChoice, CpuList_RestrictsToThoseOfTheMask) {
  const CpuChoice choice = choose(machine(kSmt2, all(8)), {.threads = {}, .cpu_list = "1-2,5"});
  EXPECT_EQ(choice.usable, (Cpus{1, 2, 5}));
  EXPECT_EQ(choice.pinned, (Cpus{1, 2}));
  EXPECT_EQ(choice.why, "one for each of 2 physical cores");
  EXPECT_EQ(choose(machine(kSmt2, all(8)), {.threads = {}, .cpu_list = "6"}).waiting, Waiting::kBlock);
}

TEST(CpuChoice, CpuListOfWhatCannotBe_NamesTheCpu) {
  const MachineCpus m = machine(kSmt2, {0, 1, 2, 4, 5, 6}, {7});
  EXPECT_EQ(refusal(m, "0,9"), "--cpu-list: there is no CPU 9; this machine has 0-6");
  EXPECT_EQ(refusal(m, "7"), "--cpu-list: CPU 7 is offline");
  EXPECT_EQ(refusal(m, "0-3"),
            "--cpu-list: CPU 3 is not allowed to this process, which may use 0-2,4-6 (affinity, cpuset)");
  EXPECT_EQ(refusal(m, "0-"),
            "--cpu-list: \"0-\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8");
  EXPECT_EQ(refusal(m, "2-0"), "--cpu-list: \"2-0\": ends before it begins; write numbers and ranges such as 0-3,8");
}

TEST(CpuChoice, CoresOfOtherProcesses_ComeLast) {
  MachineCpus m = machine("core:4 pu:1", all(4));
  m.taken = {0, 0, 1};
  EXPECT_EQ(choose(m, {.threads = 1, .cpu_list = {}}).pinned, (Cpus{2}));
  EXPECT_EQ(choose(m, {.threads = 3, .cpu_list = {}}).pinned, (Cpus{2, 3, 1}));
  EXPECT_EQ(choose(m).pinned, (Cpus{2, 3, 1, 0})) << "all of them, as many as it may have";
  MachineCpus smt = machine(kSmt2, all(8));
  smt.taken = {4};
  EXPECT_EQ(choose(smt, {.threads = 1, .cpu_list = {}}).pinned, (Cpus{1})) << "the sibling's core is as busy";
}

// Who spins on a core burns the time of the process that computes there.
TEST(CpuChoice, CoreOfAnotherProcess_WaitsBlock) {
  MachineCpus m = machine("core:4 pu:1", all(4));
  EXPECT_EQ(choose(m).waiting, Waiting::kSpinThenPark);
  m.taken = {0, 1};
  EXPECT_EQ(choose(m).waiting, Waiting::kBlock);
  EXPECT_EQ(choose(m, {.threads = 2, .cpu_list = {}}).waiting, Waiting::kSpinThenPark) << "two are free";
  MachineCpus smt = machine(kSmt2, all(8));
  smt.taken = {4};
  EXPECT_EQ(choose(smt).waiting, Waiting::kBlock) << "the sibling's core is as busy";
}

TEST(CpuChoice, MachineThatTellsNoCores_CountsCpus) {
  EXPECT_EQ(choose(machine("pu:3", all(3))).pinned, (Cpus{0, 1, 2}));
}

TEST(CpuChoice, SameMachine_SameChoice) {
  EXPECT_EQ(choose(machine(kSmt2, all(8))).pinned, choose(machine(kSmt2, all(8))).pinned);
}

TEST(SyntheticTopology, MisspeltDescription_IsRefused) {
  const auto topology = synthetic_topology("cores, please", {0});
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.error().code(), ErrorCode::kInvalidArgument);
}

TEST(ThisMachine, EveryAllowedCpuIsInOneCore) {
  const CpuTopology topology = topology_of_this_machine();
  EXPECT_EQ(topology.note, "");
  EXPECT_EQ(topology.allowed, affinity_of_this_thread());
  std::vector<int> cores_of(65536, 0);
  for (const CpuSet& core : topology.cores)
    for (const std::uint32_t cpu : core) ++cores_of[cpu];
  for (const std::uint32_t cpu : topology.allowed) EXPECT_EQ(cores_of[cpu], 1) << cpu;
}

TEST(ThisMachine, ChoosesWithinTheMaskOfTheThread) {
  const CpuSet mine = affinity_of_this_thread();
  std::thread([&mine] {
    const auto confined = ThreadAffinity::confine({mine.back()});
    ASSERT_TRUE(confined.ok());
    const CpuChoice choice = choose(cpus_of_this_machine());
    EXPECT_EQ(choice.usable, (CpuSet{mine.back()}));
    EXPECT_EQ(choice.n_threads, 1u);
    EXPECT_EQ(choice.waiting, Waiting::kBlock);
  }).join();
}

class FakeProc : public ::testing::Test {
 protected:
  void thread(const std::string& process, const std::string& tid, const std::string& program, const std::string& list) {
    const auto task = dir_ / "proc" / process / "task" / tid;
    std::filesystem::create_directories(task);
    std::ofstream(dir_ / "proc" / process / "comm") << program << "\n";
    std::ofstream(task / "status") << "Name:\t" << program << "\nCpus_allowed:\tff\nCpus_allowed_list:\t" << list
                                   << "\n";
  }
  SystemRoots roots() const { return {dir_ / "proc", dir_ / "cgroup"}; }
  test::TempDir dir_;
};

TEST_F(FakeProc, PinnedThreadsOfOurProgramsCount_EachOnce) {
  thread("101", "101", "terrace-node", "0-3");
  thread("101", "102", "terrace-node", "2");
  thread("101", "103", "terrace-node", "2");
  thread("202", "202", "terrace", "1");
  thread("303", "303", "bash", "3");
  thread("404", "404", "terrace-random-", "3");
  thread(std::to_string(getpid()), "1", "terrace", "0");
  EXPECT_EQ(pinned_by_other_processes(roots()), (std::vector<std::uint32_t>{1, 2, 2}));
}

TEST_F(FakeProc, WhatCannotBeRead_IsLeftOut) {
  EXPECT_TRUE(pinned_by_other_processes(roots()).empty()) << "no such folder";
  thread("101", "101", "terrace", "nonsense");
  thread("self", "1", "terrace", "1");
  EXPECT_TRUE(pinned_by_other_processes(roots()).empty());
}

// Both versions of cgroups, as the choice sees them.
TEST_F(FakeProc, QuotaOfTheContainer_IsRead) {
  std::filesystem::create_directories(dir_ / "proc/self");
  std::filesystem::create_directories(dir_ / "cgroup/cpu");
  std::ofstream(dir_ / "proc/self/cgroup") << "0::/\n";
  std::ofstream(dir_ / "cgroup/cpu.max") << "150000 100000\n";
  EXPECT_EQ(cpus_of_this_machine(roots()).quota, 1.5);
  std::ofstream(dir_ / "proc/self/cgroup") << "3:cpu:/\n";
  std::ofstream(dir_ / "cgroup/cpu/cpu.cfs_quota_us") << "250000\n";
  std::ofstream(dir_ / "cgroup/cpu/cpu.cfs_period_us") << "100000\n";
  EXPECT_EQ(cpus_of_this_machine(roots()).quota, 2.5);
}

TEST(Background, HasTheCpusWithoutAWorker_WhereThereAreTwo) {
  const auto of_threads = [](std::uint32_t threads) {
    return choose_background(choose(machine(kSmt2, all(8)), {.threads = threads, .cpu_list = {}}));
  };
  EXPECT_EQ(choose_background(choose(machine(kSmt2, all(8)))).describe(), "nice 10, CPUs 4-7") << "second threads";
  EXPECT_EQ(of_threads(6).cpus, (CpuSet{6, 7}));
  EXPECT_EQ(of_threads(7).describe(), "nice 10, any CPU") << "never one CPU alone";
  EXPECT_EQ(of_threads(8).cpus, CpuSet());
  EXPECT_EQ(of_threads(9).cpus, CpuSet()) << "nothing is pinned";
}

TEST(Background, BesideSteps_AllCpusButTheFirstWorkers) {
  EXPECT_EQ(cpus_beside_steps(choose(machine(kSmt2, all(8)))), (CpuSet{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cpus_beside_steps(choose(machine(kSmt2, all(1)))), CpuSet());
  EXPECT_EQ(cpus_beside_steps(choose(machine(kSmt2, all(8)), {.threads = 9, .cpu_list = {}})), CpuSet());
}

TEST(Background, IsOfTheThreadThatEntersIt) {
  const CpuSet mine = affinity_of_this_thread();
  const int nice = getpriority(PRIO_PROCESS, 0);
  std::thread([&] {
    const ThreadAffinity on_cpus = enter_background({kBackgroundNice, {mine.back()}});
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), std::min(nice + kBackgroundNice, 19));
    EXPECT_EQ(affinity_of_this_thread(), CpuSet{mine.back()});
    const ThreadAffinity nowhere = enter_background({0, {65'000}});  // no such CPU: it stays where it is
    EXPECT_EQ(affinity_of_this_thread(), CpuSet{mine.back()});
  }).join();
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  EXPECT_EQ(affinity_of_this_thread(), mine);
}

}  // namespace
}  // namespace terrace
