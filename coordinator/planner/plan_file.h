// A plan as a file (docs/formats.md): which nodes, who owns which experts, and for which model file that was made. To
// be read, compared and kept; a run that is given it does exactly this, or refuses.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/planner/memory_plan.h"
#include "coordinator/planner/prediction_file.h"

namespace terrace::planner {

struct PlanFile {
  std::filesystem::path path;
  std::string model;          // the file's name, for messages
  std::string header_sha256;  // manifest::header_hash(), hex
  std::vector<std::string> nodes;
  std::shared_ptr<const nlohmann::json> layers;  // not looked at yet
  std::optional<StatedPrediction> prediction;    // nothing: the plan was made without --probe
};

// Read once: what a run does and what it is compared with are of the same bytes. kNotFound, kIo; kInvalidArgument: no
// plan file, or one that contradicts itself; kUnsupported: a later version.
Result<PlanFile> read_plan_file(const std::filesystem::path& path);
// The owners that the plan gives to the experts of `file`. kRefused: it was made for another model file;
// kInvalidArgument: an expert left out or given twice, a leg that is no node of the plan.
Result<legs::OwnerTable> owners_of(const PlanFile& plan, const gguf::File& file, std::uint32_t n_layers,
                                   std::uint32_t n_experts);

// Writes it, in place only when complete. `memory` is for people: nobody reads it back. prediction: of
// prediction_json(), or null, and then left out. kIo, kInvalidArgument.
Status write_plan_file(const std::filesystem::path& path, const gguf::File& file, const legs::OwnerTable& owners,
                       const MemoryPlan& memory, const nlohmann::ordered_json& prediction);
// The plan's legs, as in the plan file and in `terrace plan --json`.
nlohmann::ordered_json legs_json(const MemoryPlan& memory);

}  // namespace terrace::planner
