#include "coordinator/planner/outlook.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/transport/pacing.h"
#include "coordinator/legs/node_session.h"

namespace terrace::planner {
namespace {

std::uint64_t bytes_of(const ModelNumbers& model, std::size_t leg) {
  std::uint64_t bytes = 0;
  for (std::size_t layer = 0; layer < model.kind_of_layer.size(); ++layer)
    bytes += model.owned_of_layer[layer][leg] * model.kinds[model.kind_of_layer[layer]].slab_bytes;
  return bytes;
}

Loss lose(const OutlookInput& input, const std::vector<std::size_t>& legs) {
  Loss loss;
  loss.legs = legs;
  Places from_file(input.measured.legs.size(), Place::kItself), settled = from_file;
  for (const std::size_t leg : legs) {
    from_file[leg] = Place::kHostFile;
    settled[leg] = Place::kHostMemory;
    loss.bytes += bytes_of(input.model, leg);
  }
  const double rate = input.measured.disk.bytes_per_second();
  if (rate > 0) loss.read_seconds = static_cast<double>(loss.bytes) / rate;
  loss.decode = predict_decode(input.model, input.measured, from_file);
  loss.prompt = predict_prompt(input.model, input.measured, from_file);
  loss.has_room = loss.bytes <= input.room[0];
  loss.settled = predict_decode(input.model, input.measured, settled);
  loss.settled_prompt = predict_prompt(input.model, input.measured, settled);
  return loss;
}

void inherit(const OutlookInput& input, const InheritedShare& share, Loss& loss) {
  loss.heirs = share.heirs;
  for (const Heir& heir : share.heirs) {
    const double rate = input.measured.legs[heir.leg].weights_per_second;
    if (rate <= 0) continue;
    const double alone = static_cast<double>(heir.bytes) / rate;
    const double of_link = legs::movement_share(heir.bytes, static_cast<std::uint64_t>(rate));
    loss.move_seconds = std::max(loss.move_seconds, alone);
    loss.move_beside_seconds = std::max(loss.move_beside_seconds, alone / std::min(of_link, transport::kPacedShare));
  }
  ModelNumbers model = input.model;
  model.owned_of_layer = share.owned_of_layer;
  Places places(input.measured.legs.size(), Place::kItself);
  const std::size_t lost = loss.legs.front();
  places[lost] = bytes_of(model, lost) <= input.room[0] ? Place::kHostMemory : Place::kHostFile;
  loss.moved = predict_decode(model, input.measured, places);
  loss.moved_prompt = predict_prompt(model, input.measured, places);
}

// The layer's experts of `leg` given to the others as they own now: whole experts, the first legs get the rest.
std::vector<std::uint32_t> spread(const std::vector<std::uint32_t>& owned, std::size_t leg) {
  std::vector<std::uint32_t> result = owned;
  std::uint32_t others = 0;
  for (std::size_t i = 0; i < owned.size(); ++i) others += i == leg ? 0 : owned[i];
  result[leg] = 0;
  if (others == 0) {
    result[0] += owned[leg];
    return result;
  }
  std::uint32_t left = owned[leg];
  for (std::size_t i = 0; i < owned.size(); ++i) {
    if (i == leg) continue;
    const std::uint32_t more = owned[leg] * owned[i] / others;
    result[i] += more;
    left -= more;
  }
  for (std::size_t i = 0; left > 0; i = (i + 1) % owned.size()) {
    if (i == leg || owned[i] == 0) continue;
    ++result[i];
    --left;
  }
  return result;
}

Without plan_without(const OutlookInput& input, const Outlook& full, std::size_t leg) {
  Without without;
  without.leg = leg;
  const auto take = [&](const ModelNumbers& model, const Places& places, const char* where) {
    StepPrediction decode = predict_decode(model, input.measured, places);
    if (without.decode && without.decode->tokens_per_second >= decode.tokens_per_second) return;
    without.prompt = predict_prompt(model, input.measured, places);
    without.decode = std::move(decode);
    without.experts_on = where;
  };
  Places places(input.measured.legs.size(), Place::kItself);
  places[leg] = Place::kHostMemory;
  if (bytes_of(input.model, leg) <= input.room[0]) take(input.model, places, "the host");

  if (input.measured.legs.size() > 2) {
    ModelNumbers model = input.model;
    for (auto& owned : model.owned_of_layer) owned = spread(owned, leg);
    bool fits = true;
    for (std::size_t other = 0; other < input.room.size(); ++other)
      if (other != leg)
        fits = fits && bytes_of(model, other) - std::min(bytes_of(model, other), bytes_of(input.model, other)) <=
                           input.room[other];
    if (fits) take(model, places, "the others");
  }
  if (without.decode) {
    without.decode_pays = full.decode.tokens_per_second > without.decode->tokens_per_second;
    without.prompt_pays = full.prompt.tokens_per_second > without.prompt->tokens_per_second;
  }
  return without;
}

}  // namespace

bool stays_here(const Loss& loss) {
  return loss.has_room && !loss.heirs.empty() && loss.settled.tokens_per_second > loss.moved.tokens_per_second;
}

Outlook make_outlook(const OutlookInput& input) {
  const std::size_t n_legs = input.measured.legs.size();
  const Places places(n_legs, Place::kItself);
  Outlook outlook;
  outlook.decode = predict_decode(input.model, input.measured, places);
  outlook.prompt = predict_prompt(input.model, input.measured, places);
  for (std::size_t leg = 1; leg < n_legs; ++leg) {
    outlook.losses.push_back(lose(input, {leg}));
    if (!input.inherited.empty()) inherit(input, input.inherited[leg - 1], outlook.losses.back());
    outlook.without.push_back(plan_without(input, outlook, leg));
  }
  return outlook;
}

Loss worst_loss(const OutlookInput& input, std::size_t n) {
  const std::size_t n_nodes = input.measured.legs.size() - 1;
  n = std::min(n, n_nodes);
  std::vector<bool> chosen(n_nodes, false);
  std::fill_n(chosen.begin(), n, true);
  std::optional<Loss> worst;
  do {
    std::vector<std::size_t> legs;
    for (std::size_t i = 0; i < n_nodes; ++i)
      if (chosen[i]) legs.push_back(i + 1);
    Loss loss = lose(input, legs);
    if (!worst || loss.decode.tokens_per_second < worst->decode.tokens_per_second) worst = std::move(loss);
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return std::move(*worst);
}

Status check_survives(const OutlookInput& input, const Outlook& outlook, std::size_t n, double least) {
  const Loss worst = worst_loss(input, n);
  if (worst.decode.tokens_per_second >= least) return {};
  std::string names;
  for (const std::size_t leg : worst.legs) names += (names.empty() ? "" : " and ") + input.measured.legs[leg].name;
  const std::string settled =
      worst.has_room ? fmt::format(", {:.2f} once their experts are in memory", worst.settled.tokens_per_second)
                     : ", and this machine's memory does not hold their experts";
  return Error(
      ErrorCode::kRefused,
      fmt::format("without {} this plan decodes {:.2f} tokens a second{}; {:.2f} were asked for (--min-decode), "
                  "of {:.2f} with all nodes; give {} fewer experts, or lower --min-decode or --survive",
                  names, worst.decode.tokens_per_second, settled, least, outlook.decode.tokens_per_second,
                  worst.legs.size() == 1 ? "it" : "them"));
}

}  // namespace terrace::planner
