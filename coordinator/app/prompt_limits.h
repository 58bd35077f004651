// What a prompt's rate is compared with: how fast it would be if only one thing had to be done for it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "coordinator/app/bench_run.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/planner/prediction_file.h"

namespace terrace::app {

// The limit of what is done one after the other: the trunk and the host leg have the same threads.
inline constexpr const char* kTrunkAndHost = "trunk and host";

struct PromptLimit {
  std::string of;  // "trunk", a leg's name, "box1:9000 (its link)", kTrunkAndHost
  double tokens_per_second = 0;
};

// The trunk alone and each link's rate are the plan's measurements; the bytes on the links and how long each leg's own
// kernels took, by its own clock, are what the run counted: other legs on a leg's cores are in it. Empty: the test is
// no prompt.
std::vector<PromptLimit> prompt_limits(const BenchResult& result, std::span<const legs::LegReport> legs,
                                       const planner::StatedPrediction& plan);
// The least of them; null of none.
const PromptLimit* least(std::span<const PromptLimit> limits);

// {"<of>": tokens a second, ...}
nlohmann::ordered_json to_json(std::span<const PromptLimit> limits);
// One line: each limit, and the share of the least that was reached.
std::string to_text(const BenchResult& result, std::span<const PromptLimit> limits);

}  // namespace terrace::app
