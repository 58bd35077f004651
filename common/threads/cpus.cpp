#include "common/threads/cpus.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

namespace terrace {
namespace {

namespace fs = std::filesystem;

bool contains(const CpuSet& cpus, std::uint32_t cpu) { return std::binary_search(cpus.begin(), cpus.end(), cpu); }

CpuSet online_cpus(const CpuTopology& topology) {
  CpuSet online;
  for (const CpuSet& core : topology.cores) online.insert(online.end(), core.begin(), core.end());
  std::sort(online.begin(), online.end());
  return online;
}

// Why the list's CPU is of no use.
Error refuse(const CpuTopology& topology, std::uint32_t cpu) {
  if (contains(topology.offline, cpu))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--cpu-list: CPU {} is offline", cpu));
  const CpuSet online = online_cpus(topology);
  if (!contains(online, cpu) && topology.note.empty())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--cpu-list: there is no CPU {}; this machine has {}", cpu, format_cpu_list(online)));
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--cpu-list: CPU {} is not allowed to this process, which may use {} (affinity, cpuset)",
                           cpu, format_cpu_list(topology.allowed)));
}

Result<CpuSet> usable_cpus(const CpuTopology& topology, const std::optional<std::string>& list) {
  if (!list) return topology.allowed;
  auto wanted = parse_cpu_list(*list);
  if (!wanted.ok()) return wanted.error().in("--cpu-list");
  for (const std::uint32_t cpu : *wanted)
    if (!contains(topology.allowed, cpu)) return refuse(topology, cpu);
  return wanted;
}

// The usable CPUs of each physical core that has any; those with fewest pinned threads of other processes first.
std::vector<CpuSet> usable_cores(const MachineCpus& machine, const CpuSet& usable) {
  struct Core {
    CpuSet cpus;
    std::ptrdiff_t n_taken = 0;
  };
  std::vector<Core> cores;
  for (const CpuSet& core : machine.topology.cores) {
    Core found;
    std::set_intersection(core.begin(), core.end(), usable.begin(), usable.end(), std::back_inserter(found.cpus));
    for (const std::uint32_t cpu : core) found.n_taken += std::count(machine.taken.begin(), machine.taken.end(), cpu);
    if (!found.cpus.empty()) cores.push_back(std::move(found));
  }
  std::stable_sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) { return a.n_taken < b.n_taken; });
  std::vector<CpuSet> cpus;
  for (Core& core : cores) cpus.push_back(std::move(core.cpus));
  return cpus;
}

// The first hardware thread of each core, then the second of each that has one, and so on.
std::vector<std::uint32_t> first_cpus(const std::vector<CpuSet>& cores, std::size_t n_threads) {
  std::vector<std::uint32_t> cpus;
  for (std::size_t sibling = 0; cpus.size() < n_threads; ++sibling)
    for (const CpuSet& core : cores)
      if (sibling < core.size() && cpus.size() < n_threads) cpus.push_back(core[sibling]);
  return cpus;
}

// Whole CPUs of the quota: a thread that is throttled keeps all others waiting at the end of each operation.
std::size_t whole_cpus(const std::optional<double>& quota) {
  if (!quota || *quota >= 1e6) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(std::max(1.0, std::floor(*quota)));
}

std::string plural(std::size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string reason(const CpuRequest& request, const MachineCpus& machine, std::size_t n_cores, const CpuSet& usable) {
  const std::string of = plural(n_cores, "physical core");
  std::string why;
  if (request.threads && *request.threads > usable.size())
    why = fmt::format("--threads, more than the {} allowed", plural(usable.size(), "CPU"));
  else if (request.threads && *request.threads > n_cores)
    why = fmt::format("--threads, second hardware threads beside {}", of);
  else if (request.threads)
    why = fmt::format("--threads, of {}", of);
  else if (whole_cpus(machine.quota) < n_cores)
    why = fmt::format("the quota is {:.3g} CPUs, of {}", *machine.quota, of);
  else
    why = n_cores == 1 ? "the one physical core allowed" : fmt::format("one for each of {}", of);
  if (!machine.topology.note.empty()) why += fmt::format("; {}", machine.topology.note);
  return why;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The value behind `key` in a file of "Key:\tvalue" lines.
std::string value_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.find_first_not_of(": \t", key.size()), line.size()));
  return "";
}

// Folders of `parent` whose names are numbers: processes, threads. What ends meanwhile is left out.
std::vector<fs::path> numbered(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) folders.push_back(at->path());
  }
  return folders;
}

}  // namespace

std::vector<std::uint32_t> pinned_by_other_processes(const SystemRoots& roots) {
  std::vector<std::uint32_t> taken;
  for (const fs::path& process : numbered(roots.proc)) {
    if (process.filename() == std::to_string(getpid())) continue;
    const std::string program = first_line(process / "comm");
    if (program != "terrace" && program != "terrace-node") continue;
    for (const fs::path& thread : numbered(process / "task")) {
      const auto cpus = parse_cpu_list(value_of(thread / "status", "Cpus_allowed_list"));
      if (cpus.ok() && cpus->size() == 1) taken.push_back(cpus->front());
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

MachineCpus cpus_of_this_machine(const SystemRoots& roots) {
  return {topology_of_this_machine(), cpu_quota(roots), pinned_by_other_processes(roots)};
}

Result<CpuChoice> choose_cpus(const MachineCpus& machine, const CpuRequest& request) {
  CpuChoice choice;
  TERRACE_ASSIGN_OR_RETURN(choice.usable, usable_cpus(machine.topology, request.cpu_list));
  const std::vector<CpuSet> cores = usable_cores(machine, choice.usable);
  const std::size_t quota = whole_cpus(machine.quota);
  std::size_t n_cpus = 0;
  for (const CpuSet& core : cores) n_cpus += core.size();
  const std::size_t by_default = std::max<std::size_t>(1, std::min(cores.size(), quota));
  choice.n_threads = request.threads ? *request.threads : static_cast<std::uint32_t>(by_default);
  choice.why = reason(request, machine, cores.size(), choice.usable);

  const bool shared_unseen = quota < cores.size() && !request.cpu_list;
  if (choice.n_threads <= n_cpus && !shared_unseen) choice.pinned = first_cpus(cores, choice.n_threads);
  const CpuSet& used = choice.pinned.empty() ? choice.usable : choice.pinned;
  const auto overlap = [](const CpuSet& a, const CpuSet& b) {
    return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
  };
  const bool alone = std::none_of(cores.begin(), cores.end(), [&](const CpuSet& core) {
    return overlap(core, used) && overlap(core, machine.taken);
  });
  const bool room = std::min(cores.size(), quota) >= 2 && choice.n_threads <= std::min(n_cpus, quota) && alone;
  choice.waiting = room ? Waiting::kSpinThenPark : Waiting::kBlock;
  return choice;
}

std::string CpuChoice::describe() const {
  const char* where = pinned.empty() ? "anywhere on" : "pinned to";
  CpuSet shown = cpus();
  std::sort(shown.begin(), shown.end());
  return fmt::format("{}, {} CPU{} {}: {}; waits {}", plural(n_threads, "thread"), where, shown.size() == 1 ? "" : "s",
                     format_cpu_list(shown), why, name(waiting));
}

}  // namespace terrace
