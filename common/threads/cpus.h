// How many CPUs this process may use.
#pragma once

#include <cstddef>

#include "common/base/machine_limits.h"

namespace terrace {

// CPUs in this process's affinity mask (taskset, cpuset). >= 1.
std::size_t allowed_cpus();

// Threads to compute with unless the user says otherwise: allowed_cpus(), but no more than whole CPUs of the cgroups'
// time quota, since a thread that is throttled keeps all others waiting at the end of each operation. >= 1.
std::size_t default_thread_count(const SystemRoots& roots = {});

}  // namespace terrace
