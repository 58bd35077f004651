// `terrace plan --probe`: what a plan's machines, links and disk can do, measured before the model is loaded anywhere
// (docs/planning.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/units.h"
#include "common/gguf/file.h"
#include "common/threads/cpus.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/placement.h"
#include "coordinator/app/probe_disk.h"
#include "coordinator/planner/outlook.h"
#include "coordinator/terminal/notes.h"

namespace terrace::app {

inline constexpr std::uint64_t kLeastProbeMemory = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMostProbeMemory = std::uint64_t{1} << 30;
// Two last-level caches of this machine as the C library tells them, from 128M to 1G.
Bytes usual_probe_memory();

struct ProbeResult {
  planner::ModelNumbers model;
  planner::Measurements measured;
  std::vector<std::uint64_t> room;                 // [legs] as of OutlookInput
  std::vector<planner::InheritedShare> inherited;  // likewise
  DiskRates disk;
  std::vector<std::uint64_t> leg_bytes;  // [legs] of experts that each was measured with
  std::vector<std::string> notes;        // what weakens the measurement

  planner::OutlookInput input() const { return {model, measured, room, inherited}; }
};

// Takes the placement's controls. memory: bytes of experts for each leg. Nothing of it is left on a node, whatever
// happens: its session ends with this call, or with its last connection. Errors name the node, the file or what is
// missing; kUnsupported: a card of this machine.
Result<ProbeResult> run_probe(const gguf::File& file, const ModelOptions& options, Placement& placement,
                              const CpuChoice& cpus, Bytes memory, terminal::Notes& notes);

}  // namespace terrace::app
