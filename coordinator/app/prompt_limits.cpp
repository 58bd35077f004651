#include "coordinator/app/prompt_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace terrace::app {

std::vector<PromptLimit> prompt_limits(const BenchResult& result, std::span<const legs::LegReport> legs,
                                       const planner::StatedPrediction& plan) {
  std::vector<PromptLimit> limits;
  if (result.test.n_prompt == 0) return limits;
  const double tokens = static_cast<double>(result.measured_tokens);
  if (plan.prompt_trunk > 0) limits.push_back({"trunk", plan.prompt_rows / plan.prompt_trunk});
  double host = 0;
  for (std::size_t i = 0; i < legs.size() && i < result.counters.size(); ++i) {
    const legs::LegCounters& counted = result.counters[i];
    if (counted.compute_us > 0) {
      limits.push_back({legs[i].name, tokens / (static_cast<double>(counted.compute_us) * 1e-6)});
      if (legs[i].kind == legs::LegKind::kHost) host = limits.back().tokens_per_second;
    }
    const auto link = std::ranges::find(plan.links, legs[i].name, &planner::StatedLink::node);
    const auto bytes = static_cast<double>(std::max(counted.bytes_sent, counted.bytes_received));  // both ways at once
    if (link != plan.links.end() && bytes > 0)
      limits.push_back({legs[i].name + " (its link)", tokens * link->bytes_per_second / bytes});
  }
  if (host > 0 && plan.prompt_trunk > 0)
    limits.push_back({kTrunkAndHost, 1 / (plan.prompt_trunk / plan.prompt_rows + 1 / host)});
  return limits;
}

const PromptLimit* least(std::span<const PromptLimit> limits) {
  const auto found = std::ranges::min_element(limits, {}, &PromptLimit::tokens_per_second);
  return found == limits.end() ? nullptr : &*found;
}

nlohmann::ordered_json to_json(std::span<const PromptLimit> limits) {
  auto object = nlohmann::ordered_json::object();
  for (const PromptLimit& limit : limits) object[limit.of] = limit.tokens_per_second;
  return object;
}

std::string to_text(const BenchResult& result, std::span<const PromptLimit> limits) {
  std::string text = fmt::format("  {:<7}", result.test.name());
  for (const PromptLimit& limit : limits) text += fmt::format("  {} {:.2f}", limit.of, limit.tokens_per_second);
  if (const PromptLimit* lowest = least(limits))
    text +=
        fmt::format(": {:.3f} of the least\n", result.tokens_per_second / std::max(lowest->tokens_per_second, 1e-9));
  return text;
}

}  // namespace terrace::app
