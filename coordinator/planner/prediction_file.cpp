#include "coordinator/planner/prediction_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/gguf/text.h"
#include "coordinator/legs/routed_experts.h"

namespace terrace::planner {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kMilli = 1e3;
constexpr double kMicro = 1e6;

ordered_json cost_json(const ExpertCost& cost) {
  ordered_json each = ordered_json::object();
  for (std::size_t i = 0; i < kCostRows.size(); ++i) each[std::to_string(kCostRows[i])] = cost.each[i] * kMicro;
  return {{"expert_us_at_rows", each}, {"decode_batch_us", cost.decode_fixed * kMicro}};
}

ordered_json leg_json(const LegMeasurement& leg) {
  ordered_json entry = {{"name", leg.name}, {"machine", fmt::format("{:016x}", leg.machine)}, {"threads", leg.threads}};
  if (!leg.is_host) {
    entry["round_trip_us"] = leg.round_trip * kMicro;
    entry["bytes_per_second"] = leg.bytes_per_second;
    entry["weights_bytes_per_second"] = leg.weights_per_second;
  }
  entry["kinds"] = ordered_json::array();
  for (std::size_t kind = 0; kind < leg.alone.size(); ++kind)
    entry["kinds"].push_back({{"alone", cost_json(leg.alone[kind])}, {"all_at_once", cost_json(leg.together[kind])}});
  return entry;
}

ordered_json step_json(const StepPrediction& step, const Measurements& measured) {
  ordered_json entry = {{"tokens_per_second", step.tokens_per_second},
                        {"limited_by", step.limited_by},
                        {"step_ms", step.step * kMilli},
                        {"trunk_ms", step.trunk * kMilli},
                        {"dispatch_ms", step.dispatch * kMilli},
                        {"layers_ms", step.layers * kMilli},
                        {"beyond_terms_ms", step.whole * kMilli},
                        {"hidden_ms", step.hidden * kMilli},
                        {"halves_pay", step.halves_pay},
                        {"parts", step.parts},
                        {"legs", ordered_json::array()}};
  for (std::size_t i = 0; i < step.legs.size(); ++i) {
    const LegTerms& terms = step.legs[i];
    entry["legs"].push_back({{"name", measured.legs[i].name},
                             {"experts", terms.experts},
                             {"rows_an_expert", terms.rows},
                             {"compute_us", terms.compute * kMicro},
                             {"round_trip_us", terms.round_trip * kMicro},
                             {"bytes_out", terms.bytes_out},
                             {"bytes_back", terms.bytes_back},
                             {"wire_us", terms.wire * kMicro},
                             {"read_us", terms.read * kMicro},
                             {"share_of_time_last", terms.limits}});
  }
  return entry;
}

ordered_json step_inputs(const StepMeasurement& step) {
  return {{"trunk_ms", step.trunk * kMilli},
          {"dispatch_us", step.dispatch * kMicro},
          {"whole_over_terms", step.whole_over_terms}};
}

ordered_json inputs_json(const OutlookInput& input) {
  const Measurements& m = input.measured;
  ordered_json inputs = {{"decode", step_inputs(m.decode)},
                         {"prompt", step_inputs(m.prompt)},
                         {"fan_out_us", m.fan_out * kMicro},
                         {"disk",
                          {{"direct_bytes_per_second", m.disk.direct_bytes_per_second},
                           {"best_direct_bytes_per_second", m.disk.best_direct_bytes_per_second},
                           {"best_depth", m.disk.best_depth},
                           {"buffered_bytes_per_second", m.disk.buffered_bytes_per_second}}},
                         {"legs", ordered_json::array()}};
  for (std::size_t i = 0; i < m.legs.size(); ++i) {
    ordered_json leg = leg_json(m.legs[i]);
    leg["room_bytes"] = input.room[i];
    inputs["legs"].push_back(std::move(leg));
  }
  return inputs;
}

ordered_json rate_json(const StepPrediction& step) {
  return {{"tokens_per_second", step.tokens_per_second}, {"limited_by", step.limited_by}};
}

// As cost_json() wrote it; nothing: not all of it is there.
std::optional<double> expert_seconds(const json& leg) {
  const json::json_pointer at("/all_at_once/expert_us_at_rows/1");
  if (!leg.contains("kinds") || !leg["kinds"].is_array() || leg["kinds"].empty()) return std::nullopt;
  double sum = 0;
  for (const json& kind : leg["kinds"]) {
    if (!kind.is_object() || !kind.contains(at) || !kind[at].is_number()) return std::nullopt;
    sum += kind[at].get<double>();
  }
  const double mean = sum / static_cast<double>(leg["kinds"].size()) / kMicro;
  return std::isfinite(mean) && mean > 0 ? std::optional(mean) : std::nullopt;
}

// What a prompt cannot be faster than: of the measurements that the prediction was made from.
bool read_limits(const json& prediction, StatedPrediction& stated) {
  const auto number = [](const json& object, const char* key, double& to) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return false;
    to = object[key].get<double>();
    return std::isfinite(to) && to >= 0;
  };
  if (!prediction.contains("measured") || !prediction["measured"].is_object()) return false;
  const json& measured = prediction["measured"];
  double trunk_ms = 0;
  if (!measured.contains("prompt") || !number(measured["prompt"], "trunk_ms", trunk_ms)) return false;
  stated.prompt_trunk = trunk_ms / kMilli;
  if (!measured.contains("legs") || !measured["legs"].is_array()) return false;
  for (const json& leg : measured["legs"]) {
    if (!leg.is_object() || !leg.contains("name") || !leg["name"].is_string()) return false;
    StatedLink link{leg["name"].get<std::string>(), 0};
    if (leg.contains("bytes_per_second") && !number(leg, "bytes_per_second", link.bytes_per_second)) return false;
    if (const auto seconds = expert_seconds(leg)) stated.speeds.push_back({link.node, *seconds});
    if (link.bytes_per_second > 0) stated.links.push_back(std::move(link));
  }
  return true;
}

// In older plans heirs take over wherever they can.
bool read_staying(const json& prediction, StatedPrediction& stated) {
  if (!prediction.contains("lost")) return true;
  if (!prediction["lost"].is_array()) return false;
  for (const json& loss : prediction["lost"]) {
    if (!loss.is_object() || !loss.contains("node") || !loss["node"].is_string()) return false;
    if (!loss.contains("experts_stay")) continue;
    if (!loss["experts_stay"].is_boolean()) return false;
    if (loss["experts_stay"].get<bool>()) stated.staying.push_back(loss["node"].get<std::string>());
  }
  return true;
}

}  // namespace

ordered_json heirs_json(std::span<const Heir> heirs, FunctionRef<std::string(std::size_t leg)> name_of) {
  ordered_json list = ordered_json::array();
  for (const Heir& heir : heirs)
    list.push_back({{"node", name_of(heir.leg)}, {"experts", heir.experts}, {"bytes", heir.bytes}});
  return list;
}

double expert_seconds(const LegMeasurement& leg) {
  double sum = 0;
  for (const ExpertCost& kind : leg.together) sum += kind.each.front();
  return sum / static_cast<double>(leg.together.size());
}

ordered_json prediction_json(const OutlookInput& input, const Outlook& outlook, const std::string& date) {
  ordered_json result = {{"date", date},
                         {"prompt_rows", input.model.prompt_rows},
                         {"decode", step_json(outlook.decode, input.measured)},
                         {"prompt", step_json(outlook.prompt, input.measured)}};
  result["lost"] = ordered_json::array();
  for (const Loss& loss : outlook.losses) {
    ordered_json entry = {{"node", input.measured.legs[loss.legs.front()].name},
                          {"decode", step_json(loss.decode, input.measured)},
                          {"prompt", rate_json(loss.prompt)},
                          {"host_has_room", loss.has_room},
                          {"bytes_to_read", loss.bytes},
                          {"seconds_to_read", loss.read_seconds}};
    entry["decode_settled"] = loss.has_room ? step_json(loss.settled, input.measured) : ordered_json();
    entry["prompt_settled"] = loss.has_room ? rate_json(loss.settled_prompt) : ordered_json();
    entry["heirs"] = heirs_json(loss.heirs, [&](std::size_t leg) { return input.measured.legs[leg].name; });
    entry["experts_stay"] = stays_here(loss);
    entry["bytes_to_move"] = bytes_to_move(loss.heirs);
    entry["seconds_to_move"] = loss.move_seconds;
    entry["seconds_to_move_beside_streams"] = loss.move_beside_seconds;
    entry["decode_moved"] = loss.heirs.empty() ? ordered_json() : rate_json(loss.moved);
    entry["prompt_moved"] = loss.heirs.empty() ? ordered_json() : rate_json(loss.moved_prompt);
    result["lost"].push_back(std::move(entry));
  }
  result["without"] = ordered_json::array();
  for (const Without& without : outlook.without) {
    ordered_json entry = {{"node", input.measured.legs[without.leg].name},
                          {"possible", without.decode.has_value()},
                          {"experts_on", without.experts_on},
                          {"pays_for_decode", without.decode_pays},
                          {"pays_for_prompts", without.prompt_pays}};
    entry["decode"] = without.decode ? rate_json(*without.decode) : ordered_json();
    entry["prompt"] = without.prompt ? rate_json(*without.prompt) : ordered_json();
    result["without"].push_back(std::move(entry));
  }
  result["measured"] = inputs_json(input);
  return result;
}

Result<std::optional<StatedPrediction>> read_prediction(const json& plan, const std::filesystem::path& plan_file) {
  const auto bad = [&](const char* what) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: \"prediction\": {}; make the plan again: terrace plan --probe --out FILE",
                             plan_file.string(), what));
  };
  if (!plan.is_object() || !plan.contains("prediction")) return std::optional<StatedPrediction>();
  const json& p = plan["prediction"];
  const auto rate_of = [](const json& object, const char* step, double& tokens, std::string& limited_by) {
    if (!object.contains(step) || !object[step].is_object()) return false;
    const json& entry = object[step];
    if (!entry.contains("tokens_per_second") || !entry["tokens_per_second"].is_number()) return false;
    if (!entry.contains("limited_by") || !entry["limited_by"].is_string()) return false;
    tokens = entry["tokens_per_second"].get<double>();
    limited_by = gguf::escaped(entry["limited_by"].get<std::string>());
    return std::isfinite(tokens) && tokens >= 0;
  };
  StatedPrediction stated;
  if (!p.is_object() || !p.contains("date") || !p["date"].is_string()) return bad("no date");
  stated.date = gguf::escaped(p["date"].get<std::string>());
  if (!p.contains("prompt_rows") || !p["prompt_rows"].is_number_unsigned() || p["prompt_rows"] > 65536)
    return bad("no prompt_rows");
  stated.prompt_rows = p["prompt_rows"].get<std::uint32_t>();
  if (!rate_of(p, "decode", stated.decode, stated.decode_limited_by) ||
      !rate_of(p, "prompt", stated.prompt, stated.prompt_limited_by))
    return bad("no rates");
  if (const json& decode = p["decode"]; decode.contains("halves_pay")) {
    if (!decode["halves_pay"].is_boolean()) return bad("halves_pay is no boolean");
    stated.decode_halves_pay = decode["halves_pay"].get<bool>();
  }
  // 1: without nodes that pay, or of an older plan; what a run with nodes does by itself stays.
  if (const json& prompt = p["prompt"]; prompt.contains("parts")) {
    if (!prompt["parts"].is_number_unsigned() || prompt["parts"] > legs::kMostLayersOpen)
      return bad("parts is no number of parts of a prompt");
    stated.prompt_parts = std::max(prompt["parts"].get<std::uint32_t>(), stated.prompt_parts);
  }
  if (!read_limits(p, stated)) return bad("no measurements");
  if (!read_staying(p, stated)) return bad("it does not say who takes over from a lost node");
  return std::optional(std::move(stated));
}

}  // namespace terrace::planner
