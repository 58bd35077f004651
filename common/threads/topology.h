// Which CPUs this machine has, which of them share a physical core, and which this process may use.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/threads/cpu_set.h"

namespace terrace {

struct CpuTopology {
  std::vector<CpuSet> cores;  // the online CPUs (hardware threads) of each physical core, in the machine's order
  CpuSet offline;             // there, but switched off
  CpuSet allowed;             // that the calling thread may use: affinity mask (taskset) and cpuset
  std::string note;           // why `cores` is a guess (each allowed CPU one); empty: it is known
};

// This machine, by hwloc. Where hwloc cannot tell, or was told of another machine (its own variables HWLOC_SYNTHETIC
// and HWLOC_XMLFILE), every allowed CPU counts as a core, and `note` says so.
CpuTopology topology_of_this_machine();

// A made-up machine, in hwloc's words: "package:2 core:4 pu:2". `allowed`: the mask; `offline`: switched off.
// kInvalidArgument: the words are none.
Result<CpuTopology> synthetic_topology(const std::string& description, CpuSet allowed, CpuSet offline = {});

}  // namespace terrace
