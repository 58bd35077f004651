// Sets of CPUs by the system's numbers, as people write them ("0-3,8") and as the kernel keeps them for a thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/result.h"

namespace terrace {

using CpuSet = std::vector<std::uint32_t>;  // rising, none twice

// "0-3,8": numbers and ranges in any order. Strict: kInvalidArgument quotes the item that is empty, no number, a range
// that ends before it begins, beyond any machine (65535), or names a CPU a second time.
Result<CpuSet> parse_cpu_list(std::string_view text);
// The same spelling, "none" for the empty set.
std::string format_cpu_list(const CpuSet& cpus);

// The CPUs on which the calling thread may run: its affinity mask, of which the kernel has taken what a cpuset forbids
// and what is offline. Empty: the kernel does not tell.
CpuSet affinity_of_this_thread();

// Keeps the calling thread on some CPUs while it lives, then gives it back the mask that it had. Threads that it starts
// meanwhile inherit the confinement; those that were there before do not notice.
// Threads  Made, moved and destroyed by the thread that it confines.
class ThreadAffinity {
 public:
  ThreadAffinity() = default;  // confines nothing
  // An empty set confines nothing. kIo: the kernel refuses, the text names the CPUs.
  static Result<ThreadAffinity> confine(const CpuSet& cpus);
  ~ThreadAffinity();
  ThreadAffinity(ThreadAffinity&& other) noexcept;
  ThreadAffinity& operator=(ThreadAffinity&& other) noexcept;

 private:
  CpuSet before_;  // empty: nothing to give back
};

// Keeps another thread on `cpus`, not empty, for good. Errors as ThreadAffinity::confine().
Status confine(std::thread& thread, const CpuSet& cpus);

}  // namespace terrace
