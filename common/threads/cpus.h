// On which CPUs this process computes, with how many threads, and how they wait: chosen once, from what the machine
// offers and the user asks for, and handed down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/machine_limits.h"
#include "common/base/result.h"
#include "common/threads/cpu_set.h"
#include "common/threads/topology.h"
#include "common/threads/waiting.h"

namespace terrace {

// What the machine and the container offer to this process now.
struct MachineCpus {
  CpuTopology topology;
  std::optional<double> quota;       // CPUs' worth of time that the cgroups allow; nothing: no limit
  std::vector<std::uint32_t> taken;  // pinned_by_other_processes()
};
MachineCpus cpus_of_this_machine(const SystemRoots& roots = {});

// The CPU of each thread that another process named terrace or terrace-node has pinned (its mask is one CPU), rising,
// with repeats. The cores that have fewest are chosen first: two nodes on one machine would otherwise both begin at its
// first core. Processes that this one cannot see do not count.
std::vector<std::uint32_t> pinned_by_other_processes(const SystemRoots& roots = {});

// What the user asks for: --threads and --cpu-list.
struct CpuRequest {
  std::optional<std::uint32_t> threads;  // nothing: one for each physical core, within the quota
  std::optional<std::string> cpu_list;   // "0-3,8"; nothing: all that are allowed
};

struct CpuChoice {
  std::uint32_t n_threads = 1;  // that compute, the caller of Pool::run() among them
  CpuSet usable;                // where this process may run: allowed, and in the list
  // [n_threads] the one CPU of each, by worker number: physical cores first, then second hardware threads. Empty: the
  // kernel places them within `usable`, since there are more threads than CPUs, or since a time quota below the number
  // of cores means that other containers, unseen, use the same CPUs and would begin with the same ones.
  std::vector<std::uint32_t> pinned;
  // Spins only with two physical cores, or quota for two, a CPU for each thread, and no other terrace process on them.
  Waiting waiting = Waiting::kBlock;
  std::string why;  // the number of threads, for people: "one for each of 4 physical cores"

  // For the log: "4 threads, pinned to CPUs 0,2,4,6: one for each of 4 physical cores; waits spin then park".
  std::string describe() const;
  // For `status` and JSON: `pinned`, or `usable` where that is empty.
  const std::vector<std::uint32_t>& cpus() const { return pinned.empty() ? usable : pinned; }
};

// kInvalidArgument: the list is misspelt, or names a CPU that is not there, is offline, or is not allowed to this
// process; the text names it. Deterministic.
Result<CpuChoice> choose_cpus(const MachineCpus& machine, const CpuRequest& request);

}  // namespace terrace
