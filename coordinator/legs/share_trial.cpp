#include "coordinator/legs/share_trial.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/legs/session_sizes.h"

namespace terrace::legs {
namespace {

// The first layer of each kind that has experts.
std::vector<std::uint32_t> layers_of_each_kind(const manifest::Manifest& model) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer) {
    if (model.layers[layer].n_experts == 0) continue;
    const auto is_like = [&](std::uint32_t other) { return model.layers[other] == model.layers[layer]; };
    if (std::ranges::none_of(found, is_like)) found.push_back(layer);
  }
  return found;
}

}  // namespace

OwnerTable trial_share(const manifest::Manifest& model, const OwnerTable& before, const OwnerTable& owners,
                       std::size_t leg) {
  std::vector<std::uint16_t> trial(std::size_t{owners.n_layers()} * owners.n_experts(), 0);
  std::vector<std::uint32_t> tried;
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    const auto is_like = [&](std::uint32_t other) { return model.layers[other] == model.layers[layer]; };
    if (std::ranges::any_of(tried, is_like)) continue;
    for (std::uint32_t expert = 0; expert < owners.n_experts(); ++expert) {
      if (owners.owners(layer)[expert] != leg || before.owners(layer)[expert] == leg) continue;
      trial[std::size_t{layer} * owners.n_experts() + expert] = static_cast<std::uint16_t>(leg);
      tried.push_back(layer);
      break;
    }
  }
  return {1, owners.leg_names(), owners.n_layers(), owners.n_experts(), std::move(trial)};
}

Result<std::uint64_t> trial_bytes(NodeControl& node, const manifest::Manifest& model) {
  std::uint64_t slabs = 0;
  for (const std::uint32_t layer : layers_of_each_kind(model)) slabs += model.slab_bytes(layer);
  TERRACE_ASSIGN_OR_RETURN(
      const NodeEstimate estimate,
      node.estimate(model, session_sizes(model, kCanaryRows, kCanaryRows).limits, kLargestReplyFrame, slabs));
  return estimate.total;
}

Status try_share(std::unique_ptr<NodeControl> node, transport::Transport& transport, const SessionModel& model,
                 NodeSessionOptions options, const OwnerTable& share, std::size_t leg, bool& wrong) {
  options.max_rows = kCanaryRows;
  options.range_rows = kCanaryRows;
  options.sockets = 1;
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<NodeSession> session,
                           NodeSession::open(std::move(node), transport, model, options));
  const Status taken = session->take_share(share, leg, [](const ShareProgress&) {});
  wrong = session->wrong();
  return taken;
}

}  // namespace terrace::legs
