#include "coordinator/serve/page/tiers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace terrace::serve::page {
namespace {

using Json = nlohmann::ordered_json;

Json slots_json(const SchedulerStatus& status) {
  const auto in = [&](SlotState state) {
    return std::ranges::count_if(status.slots, [&](const SlotStatus& slot) { return slot.state == state; });
  };
  Json slots{{"total", status.slots.size()}};
  for (const SlotState state : {SlotState::kIdle, SlotState::kWaiting, SlotState::kPrompt, SlotState::kDecoding})
    slots[name(state)] = in(state);
  return slots;
}

Json leg_json(const LegStatus& leg) {
  const legs::LegCounters& c = leg.counters;
  Json json{{"name", leg.name},       {"kind", legs::name(leg.kind)}, {"state", legs::name(leg.state)},
            {"experts", leg.experts}, {"batches", c.batches},         {"rows", c.rows},
            {"pairs", c.pairs},       {"wait_us", c.wait_us},         {"compute_us", c.compute_us}};
  if (leg.kind == legs::LegKind::kNode)
    json.update({{"round_trip_us", c.round_trip_us},
                 {"bytes_sent", c.bytes_sent},
                 {"bytes_received", c.bytes_received},
                 {"weight_bytes_sent", c.weight_bytes_sent},
                 {"losses", c.losses},
                 {"rejoins", c.rejoins},
                 {"hedged_pairs", c.hedged_pairs}});
  if (!leg.reason.empty()) json["reason"] = leg.reason;
  return json;
}

// [n_layers][n_experts] each.
Json experts_json(const legs::OwnerTable& owners, const legs::ExpertUse& use) {
  Json owner_rows = Json::array(), use_rows = Json::array();
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    Json pairs = Json::array();
    for (std::uint32_t expert = 0; expert < owners.n_experts(); ++expert) pairs.push_back(use.pairs(layer, expert));
    owner_rows.push_back(owners.owners(layer));
    use_rows.push_back(std::move(pairs));
  }
  return {{"owners", std::move(owner_rows)}, {"use", std::move(use_rows)}};
}

}  // namespace

std::string tiers_json(const SchedulerStatus& status, const legs::OwnerTable& owners, const legs::ExpertUse* use,
                       std::chrono::milliseconds at) {
  const Counters& c = status.counters;
  Json json{
      {"at_ms", at.count()},
      {"epoch", owners.epoch()},
      {"layers", owners.n_layers()},
      {"experts_per_layer", owners.n_experts()},
      {"slots", slots_json(status)},
      {"queue", {{"waiting", status.queued}, {"limit", status.queue_limit}}},
      {"tokens", {{"made", c.tokens}, {"prompt_computed", c.prompt_tokens}, {"prompt_cached", c.prompt_tokens_cached}}},
      {"steps",
       {{"count", c.steps},
        {"failed", c.steps_failed},
        {"rows", c.rows},
        {"seconds", status.step_seconds.sum()},
        {"prompt_seconds", c.prompt_seconds},
        {"decode_seconds", c.decode_seconds}}},
      {"cache",
       {{"bytes", status.cache_bytes},
        {"resting_bytes", status.cache_bytes_resting},
        {"budget_bytes", status.cache_budget},
        {"resting_sequences", status.resting_sequences}}}};
  if (status.step_error) json["step_error"] = status.step_error->text();
  json["legs"] = Json::array();
  for (const LegStatus& leg : status.legs) json["legs"].push_back(leg_json(leg));
  if (use != nullptr) json["experts"] = experts_json(owners, *use);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace terrace::serve::page
