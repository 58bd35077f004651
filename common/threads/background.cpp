#include "common/threads/background.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace terrace {
namespace {

CpuSet without(const CpuSet& cpus, std::span<const std::uint32_t> taken) {
  CpuSet rest;
  std::ranges::remove_copy_if(cpus, std::back_inserter(rest),
                              [&](std::uint32_t cpu) { return std::ranges::find(taken, cpu) != taken.end(); });
  return rest;
}

}  // namespace

std::string Background::describe() const {
  return fmt::format("nice {}, {}", nice, cpus.empty() ? "any CPU" : "CPUs " + format_cpu_list(cpus));
}

Background choose_background(const CpuChoice& choice) {
  Background background{kBackgroundNice, {}};
  if (choice.pinned.empty()) return background;
  background.cpus = without(choice.usable, choice.pinned);
  if (background.cpus.size() < 2) background.cpus.clear();
  return background;
}

CpuSet cpus_beside_steps(const CpuChoice& choice) {
  if (choice.pinned.empty()) return {};
  return without(choice.usable, std::span(choice.pinned).first(1));
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
