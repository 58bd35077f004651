#include "common/threads/cpus.h"

#include <sched.h>

#include <algorithm>
#include <memory>

namespace terrace {

std::size_t allowed_cpus() {
  // The kernel refuses a mask shorter than its own, whose length it does not tell: grow until it takes one.
  for (std::size_t cpus = 1024; cpus <= (1u << 20); cpus *= 4) {
    struct Free {
      void operator()(cpu_set_t* set) const { CPU_FREE(set); }
    };
    const std::unique_ptr<cpu_set_t, Free> set(CPU_ALLOC(cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    return std::max<std::size_t>(1, static_cast<std::size_t>(CPU_COUNT_S(bytes, set.get())));
  }
  return 1;
}

std::size_t default_thread_count(const SystemRoots& roots) {
  const std::size_t cpus = allowed_cpus();
  const std::optional<double> quota = cpu_quota(roots);
  if (!quota || *quota >= static_cast<double>(cpus)) return cpus;
  return std::max<std::size_t>(1, static_cast<std::size_t>(*quota));
}

}  // namespace terrace
