// A prediction as JSON: in `terrace plan --json` and, with all it was made from, in the plan file, where `bench` finds
// it again (docs/planning.md).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/planner/outlook.h"

namespace terrace::planner {

// A node's link as it was measured.
struct StatedLink {
  std::string node;
  double bytes_per_second = 0;  // > 0
};

// How fast a leg computes a decode step's expert, all legs at once: the mean over kinds of layers.
struct StatedSpeed {
  std::string leg;
  double expert_seconds = 0;  // > 0
};
double expert_seconds(const LegMeasurement& leg);

// What a run is compared with.
struct StatedPrediction {
  std::string date;               // UTC, when it was made
  double decode = 0, prompt = 0;  // tokens a second
  std::uint32_t prompt_rows = 0;  // of a step
  std::string decode_limited_by, prompt_limited_by;
  bool decode_halves_pay = false;  // steps of several streams
  std::uint32_t prompt_parts = 2;  // of a prompt's step: 2..legs::kMostLayersOpen
  double prompt_trunk = 0;         // seconds of a step of prompt_rows rows without any expert
  std::vector<StatedLink> links;
  std::vector<StatedSpeed> speeds;
  std::vector<std::string> staying;  // nodes whose experts stay with the host when they are lost (stays_here())
};

// [{"node","experts","bytes"}], as `plan` tells who takes over a lost node's experts.
nlohmann::ordered_json heirs_json(std::span<const Heir> heirs, FunctionRef<std::string(std::size_t leg)> name_of);

nlohmann::ordered_json prediction_json(const OutlookInput& input, const Outlook& outlook, const std::string& date);

// Of a plan file's JSON; nothing where it was made without --probe. kInvalidArgument, which names `plan_file`: it is no
// prediction of ours.
Result<std::optional<StatedPrediction>> read_prediction(const nlohmann::json& plan,
                                                        const std::filesystem::path& plan_file);

}  // namespace terrace::planner
