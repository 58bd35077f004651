#include "common/threads/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace terrace {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

CpuSet to_cpus(hwloc_const_bitmap_t bitmap) {
  CpuSet cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu))
    cpus.push_back(static_cast<std::uint32_t>(cpu));
  return cpus;
}

// Cores alone are looked for, without binding this thread here and there, and whatever this process may use.
Topology prepare() {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  const bool ready = hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
                     hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                     hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86") == 0 &&
                     hwloc_topology_set_flags(
                         raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING) == 0;
  return ready ? std::move(topology) : nullptr;
}

CpuSet without(const CpuSet& cpus, const CpuSet& removed) {
  CpuSet rest;
  std::set_difference(cpus.begin(), cpus.end(), removed.begin(), removed.end(), std::back_inserter(rest));
  return rest;
}

// A machine may tell of CPUs and not of cores: then each is one.
std::vector<CpuSet> cores_of(hwloc_topology* topology, const CpuSet& offline) {
  const bool cores_known = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = cores_known ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<CpuSet> cores;
  for (hwloc_obj* core = nullptr; (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;)
    if (CpuSet online = without(to_cpus(core->cpuset), offline); !online.empty()) cores.push_back(std::move(online));
  return cores;
}

CpuTopology guess(CpuSet allowed, std::string why) {
  CpuTopology machine;
  for (const std::uint32_t cpu : allowed) machine.cores.push_back({cpu});
  machine.allowed = std::move(allowed);
  machine.note = fmt::format("{}: every CPU counts as a core", why);
  return machine;
}

}  // namespace

CpuTopology topology_of_this_machine() {
  CpuSet allowed = affinity_of_this_thread();
  const Topology topology = prepare();
  if (topology == nullptr || hwloc_topology_load(topology.get()) != 0)
    return guess(std::move(allowed), "hwloc finds no topology");
  if (hwloc_topology_is_thissystem(topology.get()) == 0)
    return guess(std::move(allowed), "hwloc was told of another machine");
  CpuTopology machine;
  const CpuSet online = to_cpus(hwloc_topology_get_topology_cpuset(topology.get()));
  machine.offline = without(to_cpus(hwloc_topology_get_complete_cpuset(topology.get())), online);
  machine.cores = cores_of(topology.get(), machine.offline);
  if (const CpuSet unknown = without(allowed, online); !unknown.empty())
    return guess(std::move(allowed), fmt::format("hwloc does not know CPU {}", format_cpu_list(unknown)));
  machine.allowed = std::move(allowed);
  return machine;
}

Result<CpuTopology> synthetic_topology(const std::string& description, CpuSet allowed, CpuSet offline) {
  const Topology topology = prepare();
  if (topology == nullptr || hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    return Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no synthetic topology of hwloc", description));
  CpuTopology machine;
  machine.cores = cores_of(topology.get(), offline);
  machine.offline = std::move(offline);
  machine.allowed = std::move(allowed);
  return machine;
}

}  // namespace terrace
