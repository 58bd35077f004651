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

CpuSet cpus_beside_workers(const CpuChoice& choice) {
  if (choice.pinned.empty()) return {};
  const CpuSet cpus = without(choice.usable, std::span(choice.pinned).subspan(1));
  return cpus.size() < 2 ? CpuSet() : cpus;
}

Background choose_background(const CpuChoice& choice, std::size_t n_threads) {
  Background background{kBackgroundNice, {}, choice.usable.size() > choice.n_threads};
  if (!background.spare || choice.pinned.empty()) return background;
  background.cpus = without(choice.usable, choice.pinned);
  if (background.cpus.size() < std::max<std::size_t>(n_threads, 2)) background.cpus = cpus_beside_workers(choice);
  return background;
}

Result<CpuChoice> choose_cpus_but_one(const MachineCpus& machine, const CpuRequest& request) {
  TERRACE_ASSIGN_OR_RETURN(CpuChoice all, choose_cpus(machine, request));
  if (request.threads || all.pinned.empty() || all.n_threads < kManyCores) return all;
  CpuRequest fewer = request;
  fewer.threads = all.n_threads - 1;
  TERRACE_ASSIGN_OR_RETURN(CpuChoice choice, choose_cpus(machine, fewer));
  choice.why = all.why + " but one, which is left to what moves bytes";
  return choice;
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
