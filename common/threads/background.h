// How threads run that move and check bytes for later, as those of the weights lanes do, beside those that compute and
// that somebody waits for: behind them in the system's order, and not on their CPUs where there are others.
#pragma once

#include <string>

#include "common/threads/cpu_set.h"
#include "common/threads/cpus.h"

namespace terrace {

struct Background {
  // Added to the process's nice value. 0: they are as all others.
  int nice = 0;
  CpuSet cpus;  // that they may run on; empty: wherever the process may

  // For the log: "nice 10, CPUs 8-15", "nice 10, any CPU".
  std::string describe() const;
};

// Puts these aside for a thread that is woken, and leaves them a tenth of what others have of a CPU that is busy all
// the time: they never starve.
inline constexpr int kBackgroundNice = 10;

// kBackgroundNice, and the CPUs to which no thread that computes is pinned, where there are two or more. (A thread that
// has one CPU alone counts as one that computes: pinned_by_other_processes().)
Background choose_background(const CpuChoice& choice);

// All CPUs but the first worker's, which is the step's in a coordinator. Empty: anywhere.
CpuSet cpus_beside_steps(const CpuChoice& choice);

// The calling thread is one of them from now on, on their CPUs while the result lives. What the system refuses it goes
// without.
[[nodiscard]] ThreadAffinity enter_background(const Background& background);

}  // namespace terrace
