// Where the threads of the real programs may run, as the kernel tells (/proc/PID/task), and what they say of it.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "common/threads/background.h"
#include "common/threads/cpus.h"
#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/node_process.h"

namespace terrace::test {
namespace cpus_test {

struct Thread {
  std::string name;
  CpuSet cpus;  // its mask
  int nice = 0;
};

// Of a line of /proc/PID/task/TID/stat: what follows the name, which may have spaces, begins behind its parenthesis.
int nice_of(const std::filesystem::path& task) {
  std::ifstream stat(task / "stat");
  std::string line, field;
  std::getline(stat, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  for (int i = 0; i < 17; ++i) fields >> field;  // the 19th of the line
  return field.empty() ? 0 : std::stoi(field);
}

std::vector<Thread> threads_of(pid_t pid) {
  std::vector<Thread> threads;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream status(task.path() / "status");
    Thread thread;
    for (std::string line; std::getline(status, line);) {
      const std::string value = line.substr(std::min(line.find_first_not_of(" \t", line.find(':') + 1), line.size()));
      if (line.starts_with("Name:")) thread.name = value;
      if (line.starts_with("Cpus_allowed_list:")) thread.cpus = parse_cpu_list(value).value();
    }
    thread.nice = nice_of(task.path());
    if (!thread.cpus.empty()) threads.push_back(std::move(thread));
  }
  return threads;
}

const Thread& named(const std::vector<Thread>& threads, const std::string& name) {
  const auto found = std::find_if(threads.begin(), threads.end(), [&](const Thread& t) { return t.name == name; });
  if (found == threads.end()) throw std::runtime_error("no thread is called " + name);
  return *found;
}

class Cpus : public testing::Test {
 protected:
  // What a process without flags would do here, were it alone: tests of others may run beside this one.
  static CpuChoice alone(const CpuRequest& request = {}) {
    MachineCpus machine = cpus_of_this_machine();
    machine.taken.clear();
    return must_choose(machine, request);
  }
  static CpuChoice must_choose(const MachineCpus& machine, const CpuRequest& request) {
    auto choice = choose_cpus(machine, request);
    if (!choice.ok()) throw std::runtime_error(choice.error().text());
    return *choice;
  }
  static std::vector<std::uint32_t> sorted(std::vector<std::uint32_t> cpus) {
    std::sort(cpus.begin(), cpus.end());
    return cpus;
  }
  const CpuSet mine_ = affinity_of_this_thread();
};

TEST_F(Cpus, Node_PinsWhatComputesAndNothingElse) {
  const CpuChoice expected = alone();
  NodeProcess node;
  const json status = node.status();
  EXPECT_EQ(status["threads"], expected.n_threads);
  EXPECT_EQ(status["pinned"], !expected.pinned.empty());
  // Where other programs of ours have pinned threads to the same cores, it blocks.
  EXPECT_TRUE(status["waiting"] == name(expected.waiting) || status["waiting"] == "block") << status["waiting"];
  EXPECT_EQ(status["cpu_choice"], expected.why);
  EXPECT_EQ(sorted(status["cpus"]), sorted(expected.cpus()));
  const std::vector<Thread> threads = threads_of(node.process().pid());
  if (!expected.pinned.empty()) {
    EXPECT_EQ(named(threads, "terrace-compute").cpus, CpuSet{status["cpus"][0]});
    for (std::uint32_t i = 1; i < expected.n_threads; ++i)
      EXPECT_EQ(named(threads, "terrace-w" + std::to_string(i)).cpus, CpuSet{status["cpus"][i]});
  }
  // What takes weights in stands behind all others, and keeps off the workers' CPUs where there are enough.
  const auto in_background = [](const Thread& thread) {
    return thread.name == "terrace-slabs" || thread.name.starts_with("terrace-hash-");
  };
  const CpuSet aside = choose_background(expected).cpus;
  EXPECT_EQ(std::ranges::count(threads, "terrace-slabs", &Thread::name), aside.empty() ? 0 : 1);
  const int nice = named(threads, "terrace-io").nice;
  for (const Thread& thread : threads) {
    EXPECT_EQ(thread.nice, in_background(thread) ? std::min(nice + kBackgroundNice, 19) : nice) << thread.name;
    if (thread.name == "terrace-compute" || thread.name.starts_with("terrace-w")) continue;
    EXPECT_EQ(thread.cpus, in_background(thread) && !aside.empty() ? aside : mine_) << thread.name;
  }
  node.stop();
}

TEST_F(Cpus, NodeWithACpuList_RunsThereAlone_AndBlocks) {
  const std::string one = std::to_string(mine_.back());
  NodeProcess node({"--cpu-list", one});
  const json status = node.status();
  EXPECT_EQ(status["threads"], 1);
  EXPECT_EQ(status["cpus"], json::array({mine_.back()}));
  EXPECT_EQ(status["waiting"], "block");
  for (const Thread& thread : threads_of(node.process().pid()))
    EXPECT_EQ(thread.cpus, CpuSet{mine_.back()}) << thread.name;
  const std::string table = run_terrace({"status", "--node", node.address()}).out;
  EXPECT_NE(table.find("threads 1  CPUs " + one + ", pinned  waits block  ("), std::string::npos) << table;
  node.stop();
}

// As under taskset: the mask is what a child inherits.
TEST_F(Cpus, MaskOfOneCpu_OneThreadThatBlocks_InBothPrograms) {
  const auto confined = ThreadAffinity::confine({mine_.front()});
  ASSERT_TRUE(confined.ok());
  NodeProcess node;
  EXPECT_EQ(node.status()["waiting"], "block");
  EXPECT_EQ(node.status()["cpus"], json::array({mine_.front()}));
  const json run =
      run_terrace_json({"generate", "--quiet", "--json", "-p", "Once", "-n", "4", "--node", node.address()});
  EXPECT_EQ(run["threads"], 1);
  EXPECT_EQ(run["cpus"], json::array({mine_.front()}));
  EXPECT_EQ(run["waiting"], "block");
  node.stop();
}

// While it decodes: the step's thread is on the first worker's CPU; those that gRPC and the lease started may run
// anywhere.
TEST_F(Cpus, Coordinator_PinsTheStepsThreadAndTheWorkers) {
  if (mine_.size() < 2) GTEST_SKIP() << "one CPU is allowed";
  NodeProcess node({"--threads", "1"});
  Process coordinator(terrace({"generate", "--quiet", "--prompt", "ab", "--max-tokens", "1000000", "--stream", "--seed",
                               "5", "--temperature", "1000000", "--node", node.address(), "--cpu-list",
                               format_cpu_list(mine_), "--threads", "2"}));
  ASSERT_TRUE(eventually([&] { return !coordinator.out().empty() || !coordinator.running(); }));
  coordinator.kill(SIGSTOP);
  const std::vector<Thread> threads = threads_of(coordinator.pid());
  const CpuSet step = named(threads, "terrace").cpus, worker = named(threads, "terrace-w1").cpus;
  EXPECT_EQ(step.size(), 1u);
  EXPECT_EQ(worker.size(), 1u);
  EXPECT_NE(step, worker);
  std::size_t others = 0;
  bool first = true;  // the process's first thread is the step's; others may have its name
  for (const Thread& thread : threads) {
    if (thread.name == "terrace-w1") continue;
    if (thread.name == "terrace" && std::exchange(first, false)) continue;
    EXPECT_EQ(thread.cpus, mine_) << thread.name;
    ++others;
  }
  EXPECT_GT(others, 0u);
  coordinator.kill(SIGKILL);
}

// Where its wake-ups do not put the step's thread aside.
TEST_F(Cpus, Server_AnswersClientsBesideTheStepsCpu) {
  if (mine_.size() < 2) GTEST_SKIP() << "one CPU is allowed";
  Process server(terrace({"serve", "--port", "0", "--threads", "2", "--cpu-list", format_cpu_list(mine_)}));
  ASSERT_TRUE(eventually([&] { return server.err().find("ready: ") != std::string::npos || !server.running(); }));
  const std::vector<Thread> threads = threads_of(server.pid());
  const CpuSet http = named(threads, "terrace-http").cpus, worker = named(threads, "terrace-w1").cpus;
  EXPECT_EQ(http.size(), mine_.size() - 1);
  EXPECT_TRUE(std::ranges::includes(http, worker)) << "all but the first worker's CPU, which is the step's";
  server.kill(SIGKILL);
}

TEST_F(Cpus, BadCpuList_IsAUsageErrorThatNamesIt) {
  for (const auto& [list, says] : std::map<std::string, std::string>{
           {"x", "\"x\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
           {"", "\"\": is no CPU and no range of CPUs; write numbers and ranges such as 0-3,8"},
           {"1-0", "\"1-0\": ends before it begins; write numbers and ranges such as 0-3,8"},
           {"0,0", "\"0\": names CPU 0 a second time; write numbers and ranges such as 0-3,8"}}) {
    const Outcome run = run_terrace({"generate", "--quiet", "-p", "x", "--cpu-list", list}, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "terrace: --cpu-list: " + says + "\n");
  }
  const Outcome run = run_terrace({"bench", "--quiet", "--cpu-list", "65000"}, 2);
  EXPECT_NE(run.err.find("terrace: --cpu-list: there is no CPU 65000; this machine has "), std::string::npos)
      << run.err;
}

TEST_F(Cpus, FileAndEnvironment_GiveTheList) {
  const TempDir dir;
  write_file(dir / "terrace.toml", "cpu-list = \"" + std::to_string(mine_.front()) + "\"\n");
  const Arguments command = {program("terrace"), "generate", "--quiet", "--json", "-p", "x", "-n", "1"};
  EXPECT_EQ(json::parse(run_in(dir.path(), {}, command).out)["cpus"], json::array({mine_.front()}));
  const std::string variable = "TERRACE_CPU_LIST=" + std::to_string(mine_.back());
  EXPECT_EQ(json::parse(run_in(dir.path(), {variable}, command).out)["cpus"], json::array({mine_.back()}));
}

// Who was there first keeps its core to itself as long as there is another.
TEST_F(Cpus, SecondNode_BeginsAtAnotherCore) {
  const CpuChoice one = alone({.threads = 1, .cpu_list = {}});
  if (one.pinned.empty() || cpus_of_this_machine().topology.cores.size() < 2) GTEST_SKIP() << "one core, or a quota";
  NodeProcess first({"--threads", "1"});
  const CpuChoice next = must_choose(cpus_of_this_machine(), {.threads = 1, .cpu_list = {}});
  const std::vector<std::uint32_t> taken = cpus_of_this_machine().taken;
  const auto uses = [&](std::uint32_t cpu) { return std::count(taken.begin(), taken.end(), cpu); };
  EXPECT_GE(uses(first.status()["cpus"][0].get<std::uint32_t>()), 1);
  for (const std::uint32_t cpu : mine_) EXPECT_LE(uses(next.pinned[0]), uses(cpu)) << cpu;
  first.stop();
}

}  // namespace cpus_test
}  // namespace terrace::test
