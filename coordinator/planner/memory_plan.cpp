#include "coordinator/planner/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/units.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/file_slabs.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/share.h"

namespace terrace::planner {
namespace {

using legs::LayerExperts;
using Share = std::vector<LayerExperts>;

std::uint64_t count(const Share& share) {
  std::uint64_t n = 0;
  for (const LayerExperts& layer : share) n += layer.experts.size();
  return n;
}

// The ids that a leg owns, if they are the same in every layer.
std::optional<std::vector<std::uint16_t>> same_ids(const Share& share, std::uint32_t n_layers) {
  if (share.size() != n_layers) return std::nullopt;
  for (const LayerExperts& layer : share)
    if (layer.experts != share.front().experts) return std::nullopt;
  return share.front().experts;
}

std::string describe(const Share& share, std::uint32_t n_layers) {
  if (share.empty()) return "none";
  const auto ids = same_ids(share, n_layers);
  return ids ? ids_text(*ids) : fmt::format("{} slabs", count(share));
}

// The first n of a share: the same number of experts in each layer where all layers have the same, else slabs in order.
Share first_of(const Share& share, std::uint64_t n, bool by_layer) {
  Share part;
  std::uint64_t left = n;
  for (const LayerExperts& layer : share) {
    const std::size_t take =
        static_cast<std::size_t>(std::min<std::uint64_t>(by_layer ? n : left, layer.experts.size()));
    if (take == 0) continue;
    part.push_back({layer.layer, {layer.experts.begin(), layer.experts.begin() + static_cast<std::ptrdiff_t>(take)}});
    left -= by_layer ? 0 : take;
  }
  return part;
}

// The most of `share` for which `fits` holds, found by halving; its answers fall from true to false.
template <class Fits>
Result<std::string> largest_part(const Share& share, std::uint32_t n_layers, Fits fits) {
  const auto ids = same_ids(share, n_layers);
  std::uint64_t low = 0, high = ids ? ids->size() : count(share);  // low fits, high does not
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    TERRACE_ASSIGN_OR_RETURN(const bool fit, fits(first_of(share, middle, ids.has_value())));
    (fit ? low : high) = middle;
  }
  if (low == 0) {
    TERRACE_ASSIGN_OR_RETURN(const bool none, fits(Share()));
    return std::string(none ? "give it no experts" : "leave it out, for without experts it does not fit either");
  }
  if (!ids) return fmt::format("give it at most {} of its {} slabs", low, count(share));
  return fmt::format("give it at most experts {}", ids_text(std::span(*ids).first(static_cast<std::size_t>(low))));
}

// A size for --ram that is enough: whole G where they are many, else whole M.
std::string as_option(std::uint64_t bytes) {
  const std::uint64_t unit = std::uint64_t{1} << (bytes >= (std::uint64_t{10} << 30) ? 30 : 20);
  return format_size_exact({(bytes + unit - 1) / unit * unit});
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

class NodePlanner {
 public:
  NodePlanner(const PlanInput& input, legs::NodeControl& node)
      : input_(input),
        node_(node),
        sizes_(legs::session_sizes(input.model, input.max_rows, input.range_rows, input.sockets)) {}

  Result<LegPlan> plan(const Share& share) {
    TERRACE_ASSIGN_OR_RETURN(const legs::NodeEstimate estimate, ask(share));
    LegPlan leg;
    leg.name = node_.address();
    leg.experts = describe(share, input_.model.n_layers());
    leg.slabs = count(share);
    leg.slab_bytes = estimate.slabs;
    leg.vram_bytes = estimate.card;
    leg.staging_bytes = estimate.staging;
    leg.scratch_bytes = estimate.scratch;
    leg.needs = estimate.total;
    leg.offers = offer(estimate);
    if (!fits(estimate)) {
      TERRACE_ASSIGN_OR_RETURN(leg.refusal, refuse(leg, estimate, share));
    }
    return leg;
  }

 private:
  static std::uint64_t offer(const legs::NodeEstimate& e) { return std::min(e.free, e.available); }
  static bool fits(const legs::NodeEstimate& e) { return e.total <= offer(e); }

  Result<legs::NodeEstimate> ask(const Share& share) {
    return node_.estimate(input_.model, sizes_.limits, legs::kLargestReplyFrame, legs::slab_bytes(input_.model, share));
  }

  Result<std::string> refuse(const LegPlan& leg, const legs::NodeEstimate& e, const Share& share) {
    const auto part_fits = [&](const Share& part) -> Result<bool> {
      TERRACE_ASSIGN_OR_RETURN(const legs::NodeEstimate estimate, ask(part));
      return fits(estimate);
    };
    TERRACE_ASSIGN_OR_RETURN(const std::string part, largest_part(share, input_.model.n_layers(), part_fits));
    const bool machine = e.available < e.free;
    const std::string why =
        machine ? "its machine has no more left" : fmt::format("of a budget of {}", format_size(e.budget));
    const std::string more = machine ? "end other programs there"
                                     : fmt::format("start it with --ram {}", as_option(e.budget - e.free + e.total));
    return fmt::format(
        "{}: needs {} for {} (slabs {}{}, windows {}, scratch {}) and offers {} ({}); short by {}; {}, or {}", leg.name,
        format_size(leg.needs), share.empty() ? "its session" : "experts " + leg.experts, format_size(leg.slab_bytes),
        leg.vram_bytes == 0 ? "" : fmt::format(" beside {} on its card", format_size(leg.vram_bytes)),
        format_size(leg.staging_bytes), format_size(leg.scratch_bytes), format_size(leg.offers), why,
        format_size(leg.needs - leg.offers), part, more);
  }

  const PlanInput& input_;
  legs::NodeControl& node_;
  const legs::SessionSizes sizes_;
};

// ---- this machine ---------------------------------------------------------------------------------------------------

// The file's pages may go beyond what is available where --ram says so; what is taken from the system may not.
struct HostLimits {
  std::uint64_t all;    // of everything
  std::uint64_t taken;  // of cache and scratch
};

HostLimits limits_of(const HostInput& host) {
  const std::uint64_t ram = host.ram.value_or(host.available);
  return {ram, std::min(ram, host.available)};
}

std::string refuse_host(const PlanInput& input, const LegPlan& leg, const Share& share) {
  const HostInput& host = input.host;
  const HostLimits limits = limits_of(host);
  const std::uint64_t taken = leg.cache_bytes + leg.staging_bytes + leg.scratch_bytes;
  const std::string needs =
      fmt::format("host: needs {} (experts {}: {}, dense weights {}, cache {}, windows {}, scratch {})",
                  format_size(leg.needs), leg.experts, format_size(leg.slab_bytes), format_size(leg.dense_bytes),
                  format_size(leg.cache_bytes), format_size(leg.staging_bytes), format_size(leg.scratch_bytes));
  if (taken > limits.taken)
    return fmt::format(
        "{}, of which cache, windows and scratch, {}, are more than the {} {}; short by {}; "
        "lower {}--batch",
        needs, format_size(taken), format_size(limits.taken),
        host.ram && *host.ram < host.available ? "of --ram" : "that are available", format_size(taken - limits.taken),
        leg.cache_bytes > 0 ? "--ctx-size or " : "");
  const auto part_fits = [&](const Share& part) -> Result<bool> {
    return leg.needs - leg.slab_bytes + legs::slab_bytes(input.model, part) <= limits.all;
  };
  const auto part = largest_part(share, input.model.n_layers(), part_fits);  // cannot fail: nobody is asked
  return fmt::format(
      "{} and {} {}; short by {}; {}, lower {}--batch, or say --ram {} to read weights that do not fit "
      "from the file again and again",
      needs, host.ram ? "--ram is" : "has", format_size(limits.all), format_size(leg.needs - limits.all),
      part.ok() ? *part : "give it fewer experts", leg.cache_bytes > 0 ? "--ctx-size or " : "", as_option(leg.needs));
}

LegPlan plan_host(const PlanInput& input, const Share& share) {
  const HostInput& host = input.host;
  LegPlan leg;
  leg.name = std::string(kHostLeg);
  leg.kind = legs::LegKind::kHost;
  leg.experts = describe(share, input.model.n_layers());
  leg.slabs = count(share);
  leg.slab_bytes = legs::slab_bytes(input.model, share);
  std::uint64_t on_cards = 0, pinned = 0;
  for (const CardInput& card : input.cards) {
    on_cards += card.dense_bytes;
    pinned += card.staging_bytes;
  }
  leg.dense_bytes = host.dense_bytes - std::min(host.dense_bytes, on_cards);
  leg.cache_bytes = host.cache_bytes;
  const std::uint64_t n_nodes = input.owners.n_legs() - 1 - input.cards.size();
  leg.staging_bytes =
      n_nodes * legs::session_sizes(input.model, input.max_rows, input.range_rows, input.sockets).windows();
  leg.scratch_bytes = host.scratch_bytes + pinned;
  const std::uint64_t taken = leg.cache_bytes + leg.staging_bytes + leg.scratch_bytes;
  leg.needs = leg.slab_bytes + leg.dense_bytes + taken;
  const HostLimits limits = limits_of(host);
  leg.offers = limits.all;
  if (taken > limits.taken || leg.needs > limits.all) leg.refusal = refuse_host(input, leg, share);
  return leg;
}

// ---- the cards of this machine --------------------------------------------------------------------------------------

// Its share was cut to what it holds; only a card that holds nothing of a share is a mistake. place: in `input.cards`.
LegPlan plan_card(const PlanInput& input, std::size_t place) {
  const CardInput& card = input.cards[place];
  const Share share = share_of(input.owners, input.owners.n_legs() - input.cards.size() + place);
  LegPlan leg;
  leg.name = card.name;
  leg.kind = legs::LegKind::kCard;
  leg.experts = describe(share, input.model.n_layers());
  leg.slabs = count(share);
  leg.dense_bytes = card.dense_bytes;
  for (const LayerExperts& layer : share)
    leg.slab_bytes += layer.experts.size() * legs::card_slab_bytes(legs::expert_shape(input.model.layers[layer.layer]));
  leg.cache_bytes = card.cache_bytes;
  leg.scratch_bytes = card.budget_bytes - card.slab_bytes;
  leg.needs = leg.slab_bytes + leg.dense_bytes + leg.cache_bytes + leg.scratch_bytes;
  leg.offers = card.budget_bytes;
  if (leg.slabs == 0 && input.owners.n_slabs(0) > 0)
    leg.refusal = fmt::format(
        "{}: no expert fits into the {} that a budget of {} leaves for them, or the card has no kernel for their "
        "types; "
        "give it more --vram, or leave out --gpu",
        card.description, format_size(card.slab_bytes - card.dense_bytes - card.cache_bytes),
        format_size(card.budget_bytes));
  return leg;
}

}  // namespace

bool MemoryPlan::fits() const {
  return std::all_of(legs.begin(), legs.end(), [](const LegPlan& leg) { return leg.fits(); });
}

Status MemoryPlan::status() const {
  std::string text;
  for (const LegPlan& leg : legs)
    if (!leg.fits()) text += (text.empty() ? "" : "\n") + leg.refusal;
  if (text.empty()) return {};
  return Error(ErrorCode::kOutOfMemory, std::move(text));
}

Result<MemoryPlan> plan_memory(const PlanInput& input, std::span<const std::unique_ptr<legs::NodeControl>> nodes) {
  TERRACE_CHECK(nodes.size() + 1 + input.cards.size() == input.owners.n_legs(),
                "a node for each leg but the host and the cards");
  MemoryPlan plan;
  plan.legs.push_back(plan_host(input, share_of(input.owners, 0)));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    TERRACE_RETURN_IF_ERROR(legs::check_node(*nodes[i], input.link));
    TERRACE_ASSIGN_OR_RETURN(LegPlan leg, NodePlanner(input, *nodes[i]).plan(share_of(input.owners, i + 1)));
    plan.legs.push_back(std::move(leg));
  }
  for (std::size_t i = 0; i < input.cards.size(); ++i) plan.legs.push_back(plan_card(input, i));
  const LegPlan& host = plan.legs.front();
  if (host.fits()) {
    const HostLimits limits = limits_of(input.host);
    plan.room_for_cache =
        std::min(limits.all - (host.needs - host.cache_bytes), limits.taken - host.staging_bytes - host.scratch_bytes);
  }
  const bool cache_on_card =
      std::ranges::any_of(input.cards, [](const CardInput& card) { return card.cache_bytes > 0; });
  if (host.cache_bytes == 0 && host.fits() && !cache_on_card)
    plan.room_for_positions =
        std::min<std::uint64_t>(positions_in(input.info, plan.room_for_cache), input.info.context);
  return plan;
}

}  // namespace terrace::planner
