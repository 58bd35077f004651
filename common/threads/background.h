// How threads run that move and check bytes for later, as those of the weights lanes do, beside those that compute and
// that somebody waits for: behind them in the system's order, and not on their CPUs where there are others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/threads/cpu_set.h"
#include "common/threads/cpus.h"

namespace terrace {

struct Background {
  // Added to the process's nice value. 0: they are as all others.
  int nice = 0;
  CpuSet cpus;  // that they may run on; empty: wherever the process may
  // There is a CPU more than threads that compute. Where there is none, a further thread that moves bytes would put one
  // that computes aside, and all others wait for that at the end of each operation.
  bool spare = true;

  // For the log: "nice 10, CPUs 8-15", "nice 10, any CPU".
  std::string describe() const;
};

// Puts these aside for a thread that is woken, and leaves them a tenth of what others have of a CPU that is busy all
// the time: they never starve.
inline constexpr int kBackgroundNice = 10;

// CPUs to which no worker is pinned but the first, whose part is taken by whoever calls Pool::run(): where a thread may
// run that must not wait behind a worker, nor put one aside. Empty: anywhere, since there are less than two.
CpuSet cpus_beside_workers(const CpuChoice& choice);

// kBackgroundNice, and for `n_threads` of them the CPUs to which no worker is pinned; where that is not one for each,
// and two at the least, cpus_beside_workers(). (A thread that has one CPU alone counts as one that computes:
// pinned_by_other_processes().)
Background choose_background(const CpuChoice& choice, std::size_t n_threads);

// As choose_cpus(), for a program that moves bytes beside what it computes: of kManyCores or more physical cores one
// has no thread that computes, unless `request` says how many there are. What it would compute costs less than what all
// others wait for it while it moves bytes.
inline constexpr std::uint32_t kManyCores = 8;
Result<CpuChoice> choose_cpus_but_one(const MachineCpus& machine, const CpuRequest& request);

// All CPUs but the first worker's, which is the step's in a coordinator. Empty: anywhere.
CpuSet cpus_beside_steps(const CpuChoice& choice);

// The calling thread is one of them from now on, on their CPUs while the result lives. What the system refuses it goes
// without.
[[nodiscard]] ThreadAffinity enter_background(const Background& background);

}  // namespace terrace
