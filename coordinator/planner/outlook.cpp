#include "coordinator/planner/outlook.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "common/base/check.h"
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

// Of n nodes, which loss decodes slowest.
class LossSearch {
 public:
  LossSearch(const OutlookInput& input, std::size_t n)
      : input_(input), n_nodes_(input.measured.legs.size() - 1), n_(n) {}

  void try_all() {
    std::vector<bool> chosen(n_nodes_, false);
    std::fill_n(chosen.begin(), n_, true);
    do {
      std::vector<std::size_t> legs;
      for (std::size_t i = 0; i < n_nodes_; ++i)
        if (chosen[i]) legs.push_back(i + 1);
      try_one(std::move(legs));
    } while (std::prev_permutation(chosen.begin(), chosen.end()));
  }

  // From the nodes with the most bytes to slower sets that differ in one node, while there is one.
  void climb(std::size_t most) {
    std::vector<std::size_t> by_bytes(n_nodes_);
    std::iota(by_bytes.begin(), by_bytes.end(), 1);
    std::ranges::stable_sort(by_bytes, std::greater(), [&](std::size_t leg) { return bytes_of(input_.model, leg); });
    try_one({by_bytes.begin(), by_bytes.begin() + static_cast<std::ptrdiff_t>(n_)});
    while (exchange_one(most)) continue;
  }

  std::size_t n_tried() const { return n_tried_; }
  std::vector<std::size_t> slowest() const {
    std::vector<std::size_t> legs = slowest_;
    std::ranges::sort(legs);
    return legs;
  }

 private:
  // Whether it is the slowest so far.
  bool try_one(std::vector<std::size_t> legs) {
    Places places(input_.measured.legs.size(), Place::kItself);
    for (const std::size_t leg : legs) places[leg] = Place::kHostFile;
    const double rate = predict_decode(input_.model, input_.measured, places).tokens_per_second;
    if (n_tried_++ > 0 && rate >= rate_) return false;
    rate_ = rate;
    slowest_ = std::move(legs);
    return true;
  }

  bool exchange_one(std::size_t most) {
    const std::vector<std::size_t> from = slowest_;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t leg = 1; leg <= n_nodes_; ++leg) {
        if (std::ranges::find(from, leg) != from.end()) continue;
        if (n_tried_ == most) return false;
        std::vector<std::size_t> legs = from;
        legs[i] = leg;
        if (try_one(std::move(legs))) return true;
      }
    }
    return false;
  }

  const OutlookInput& input_;
  const std::size_t n_nodes_, n_;
  std::vector<std::size_t> slowest_;
  double rate_ = 0;
  std::size_t n_tried_ = 0;
};

double combinations(std::size_t n, std::size_t k) {
  double sets = 1;
  for (std::size_t i = 1; i <= k; ++i) sets = sets * static_cast<double>(n - k + i) / static_cast<double>(i);
  return std::round(sets);
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

WorstLoss worst_loss(const OutlookInput& input, std::size_t n, std::size_t most_sets) {
  const std::size_t n_nodes = input.measured.legs.size() - 1;
  TERRACE_CHECK(n >= 1 && n <= n_nodes, "a loss is of some of the nodes that there are");
  LossSearch search(input, n);
  WorstLoss worst;
  worst.n_sets = combinations(n_nodes, n);
  if (worst.n_sets <= static_cast<double>(most_sets))
    search.try_all();
  else
    search.climb(most_sets);
  worst.n_tried = search.n_tried();
  worst.loss = lose(input, search.slowest());
  return worst;
}

std::string tried_text(const WorstLoss& worst) {
  if (worst.tried_all()) return "";
  return fmt::format("of {} tried of the {:.6g} sets of {} nodes: another may be slower", worst.n_tried, worst.n_sets,
                     worst.loss.legs.size());
}

Status check_survives(const OutlookInput& input, const Outlook& outlook, const WorstLoss& found, double least) {
  const Loss& worst = found.loss;
  if (worst.decode.tokens_per_second >= least) return {};
  std::string names;
  for (const std::size_t leg : worst.legs) names += (names.empty() ? "" : " and ") + input.measured.legs[leg].name;
  const std::string settled =
      worst.has_room ? fmt::format(", {:.2f} once their experts are in memory", worst.settled.tokens_per_second)
                     : ", and this machine's memory does not hold their experts";
  const std::string tried = found.tried_all() ? "" : fmt::format(" ({})", tried_text(found));
  return Error(
      ErrorCode::kRefused,
      fmt::format("without {} this plan decodes {:.2f} tokens a second{}{}; {:.2f} were asked for (--min-decode), "
                  "of {:.2f} with all nodes; give {} fewer experts, or lower --min-decode or --survive",
                  names, worst.decode.tokens_per_second, settled, tried, least, outlook.decode.tokens_per_second,
                  worst.legs.size() == 1 ? "it" : "them"));
}

}  // namespace terrace::planner
