#include "common/threads/background.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace terrace {

std::string Background::describe() const {
  return fmt::format("nice {}, {}", nice, cpus.empty() ? "any CPU" : "CPUs " + format_cpu_list(cpus));
}

Background choose_background(const CpuChoice& choice, std::size_t n_threads) {
  Background background{kBackgroundNice, {}};
  const auto pinned = [&](std::uint32_t cpu) { return std::ranges::find(choice.pinned, cpu) != choice.pinned.end(); };
  if (choice.pinned.empty()) return background;
  std::ranges::remove_copy_if(choice.usable, std::back_inserter(background.cpus), pinned);
  if (background.cpus.size() < std::max<std::size_t>(n_threads, 2)) background.cpus.clear();
  return background;
}

CpuSet cpus_beside_steps(const CpuChoice& choice) {
  if (choice.pinned.empty()) return {};
  CpuSet cpus = choice.usable;
  std::erase(cpus, choice.pinned.front());
  return cpus;
}

ThreadAffinity enter_background(const Background& background) {
  if (background.nice > 0) {
    // Of the calling thread alone, as Linux has it. Lowering needs no right.
    const int now = getpriority(PRIO_PROCESS, 0);
    (void)setpriority(PRIO_PROCESS, 0, std::min(now + background.nice, 19));
  }
  auto kept = ThreadAffinity::confine(background.cpus);
  return kept.ok() ? std::move(*kept) : ThreadAffinity();
}

}  // namespace terrace
