#include "common/threads/cpu_set.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/split_list.h"

namespace terrace {
namespace {

constexpr std::uint32_t kMostCpu = 65535;

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using Mask = std::unique_ptr<cpu_set_t, FreeMask>;

Error bad_item(std::string_view item, std::string_view why) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("\"{}\": {}; write numbers and ranges such as 0-3,8", item, why));
}

Result<std::uint32_t> parse_number(std::string_view item, std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = end == text.data() + text.size() && !text.empty();
  if (whole && (error == std::errc::result_out_of_range || (error == std::errc() && number > kMostCpu)))
    return bad_item(item, fmt::format("CPUs have numbers from 0 to {}", kMostCpu));
  if (!whole || error != std::errc()) return bad_item(item, "is no CPU and no range of CPUs");
  return number;
}

struct Range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

Result<Range> parse_range(std::string_view item) {
  const std::size_t dash = item.find('-');
  Range range;
  TERRACE_ASSIGN_OR_RETURN(range.first, parse_number(item, item.substr(0, dash)));
  range.last = range.first;
  if (dash == std::string_view::npos) return range;
  TERRACE_ASSIGN_OR_RETURN(range.last, parse_number(item, item.substr(dash + 1)));
  if (range.last < range.first) return bad_item(item, "ends before it begins");
  return range;
}

Status set_affinity(pthread_t thread, const CpuSet& cpus) {
  const std::size_t n_cpus = cpus.back() + 1;
  const std::size_t bytes = CPU_ALLOC_SIZE(n_cpus);
  const Mask mask(CPU_ALLOC(n_cpus));
  if (mask == nullptr) return Error(ErrorCode::kOutOfMemory, "no memory for a mask of CPUs");
  CPU_ZERO_S(bytes, mask.get());
  for (const std::uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, mask.get());
  const int error = pthread_setaffinity_np(thread, bytes, mask.get());
  if (error == 0) return {};
  return Error(ErrorCode::kIo, fmt::format("a thread cannot be kept on CPU {}: {}", format_cpu_list(cpus),
                                           std::generic_category().message(error)));
}

}  // namespace

Result<CpuSet> parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  for (const std::string_view item : split_list(text)) {
    TERRACE_ASSIGN_OR_RETURN(const Range range, parse_range(item));
    for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) {
      const auto at = std::lower_bound(cpus.begin(), cpus.end(), cpu);
      if (at != cpus.end() && *at == cpu) return bad_item(item, fmt::format("names CPU {} a second time", cpu));
      cpus.insert(at, cpu);
    }
  }
  return cpus;
}

std::string format_cpu_list(const CpuSet& cpus) {
  if (cpus.empty()) return "none";
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

CpuSet affinity_of_this_thread() {
  CpuSet cpus;
  // The kernel refuses a mask shorter than its own, whose length it does not tell: grow until it takes one.
  for (std::size_t n_cpus = 1024; n_cpus <= (std::size_t{1} << 20); n_cpus *= 4) {
    const std::size_t bytes = CPU_ALLOC_SIZE(n_cpus);
    const Mask mask(CPU_ALLOC(n_cpus));
    if (mask == nullptr) break;
    if (sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    for (std::uint32_t cpu = 0; cpu < n_cpus; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.push_back(cpu);
    break;
  }
  return cpus;
}

Status confine(std::thread& thread, const CpuSet& cpus) { return set_affinity(thread.native_handle(), cpus); }

Result<ThreadAffinity> ThreadAffinity::confine(const CpuSet& cpus) {
  ThreadAffinity affinity;
  if (cpus.empty()) return affinity;
  CpuSet before = affinity_of_this_thread();
  TERRACE_RETURN_IF_ERROR(set_affinity(pthread_self(), cpus));
  affinity.before_ = std::move(before);
  return affinity;
}

ThreadAffinity::~ThreadAffinity() {
  if (!before_.empty()) (void)set_affinity(pthread_self(), before_);
}

ThreadAffinity::ThreadAffinity(ThreadAffinity&& other) noexcept : before_(std::exchange(other.before_, {})) {}

ThreadAffinity& ThreadAffinity::operator=(ThreadAffinity&& other) noexcept {
  std::swap(before_, other.before_);
  return *this;
}

}  // namespace terrace
