#include "coordinator/planner/card_share.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/arena/hot_part.h"
#include "common/base/units.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/routed_experts.h"

namespace terrace::planner {

CardInput describe(const kernels::ExpertCard& card, std::uint64_t dense_bytes, std::uint64_t cache_bytes,
                   std::uint64_t trunk_pinned_bytes) {
  const kernels::CardFacts& facts = card.facts();
  CardInput input;
  input.name = legs::card_leg_name(facts.index);
  input.description = fmt::format("card {} ({})", facts.index, facts.name);
  input.budget_bytes = facts.budget_bytes;
  input.slab_bytes = card.slab_memory().size();
  input.dense_bytes = dense_bytes;
  input.cache_bytes = cache_bytes;
  input.staging_bytes = (dense_bytes > 0 ? 2 : 1) * kernels::card_staging_bytes(facts.budget_bytes) +
                        trunk_pinned_bytes + legs::kCardLoadingBytes;
  return input;
}

Result<TrunkOnCard> trunk_on(const kernels::ExpertCard& card, const kernels::CardTrunkModel& model,
                             const arch::ModelInfo& info, const arch::TrunkOptions& options) {
  constexpr std::uint64_t kLeastPositions = 4096;  // where no context was asked for
  const std::uint64_t context = options.context == 0 ? info.context : options.context;
  const std::uint64_t block_bytes = info.kv_bytes_per_position * kernels::kKvBlockPositions;
  const auto blocks_for = [](std::uint64_t positions) { return std::uint64_t{kv::Cache::blocks_for(positions)}; };
  const std::uint64_t least = blocks_for(options.context == 0 ? std::min(kLeastPositions, context) : context);
  const std::uint64_t most = std::max(least, card.facts().budget_bytes / 8 / block_bytes);
  // Of two streams one is there to be forked to: they share their blocks, but for the last.
  const std::uint64_t contexts = options.max_streams <= 2 ? 1 : options.max_streams;
  const std::uint64_t wanted = std::max(contexts * blocks_for(context), least);
  TrunkOnCard trunk;
  trunk.limits.kv = options.kv;
  trunk.limits.max_rows = options.max_rows;
  trunk.limits.max_streams = options.max_streams;
  trunk.limits.context = static_cast<std::uint32_t>(context);
  trunk.limits.max_kv_blocks = std::min(wanted, most) + options.max_streams;
  trunk.limits.max_parts = static_cast<std::uint32_t>(legs::kMostLayersOpen);
  trunk.cache_bytes = trunk.limits.max_kv_blocks * block_bytes;
  TERRACE_ASSIGN_OR_RETURN(trunk.bytes, card.trunk_bytes(model, trunk.limits));
  trunk.pinned_bytes = card.trunk_pinned_bytes(model, trunk.limits);
  if (trunk.bytes <= card.slab_memory().size() / 2) return trunk;
  return Error(
      ErrorCode::kOutOfMemory,
      fmt::format("it takes {} ({} of them for {} positions), more than half of the {} that a budget of {} leaves",
                  format_size(trunk.bytes), format_size(trunk.cache_bytes),
                  trunk.limits.max_kv_blocks * kernels::kKvBlockPositions, format_size(card.slab_memory().size()),
                  format_size(card.facts().budget_bytes)));
}

std::uint64_t dense_bytes_on(const kernels::ExpertCard& card, const arch::ModelInfo& model) {
  std::uint64_t bytes = 0;
  for (const arch::DenseMatrix& matrix : model.dense_products) {
    if (!card.check(kernels::CardProduct{matrix.type, nullptr, matrix.rows, matrix.cols, nullptr}).ok()) return 0;
    bytes += matrix.card_bytes();
  }
  return bytes <= card.slab_memory().size() ? bytes : 0;
}

bool owns_all(const legs::OwnerTable& owners, std::size_t leg) {
  return owners.n_slabs(leg) == std::uint64_t{owners.n_layers()} * owners.n_experts();
}

legs::OwnerTable give_hot_part(const legs::OwnerTable& owners, const kernels::ExpertCard& card,
                               std::uint64_t slab_bytes, std::span<const kernels::ExpertKernels> layers) {
  std::vector<arena::HotCandidate> candidates;
  std::vector<std::size_t> places;  // [candidates] in `table`
  std::vector<std::uint16_t> table;
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    const auto row = owners.owners(layer);
    table.insert(table.end(), row.begin(), row.end());
    const kernels::ExpertShape& shape = layers[layer].shape;
    const std::uint64_t bytes = card.check(shape).ok() ? legs::card_slab_bytes(shape) : 0;
    for (const std::uint16_t expert : owners.experts(0, layer)) {
      candidates.push_back({layer, bytes});
      places.push_back(std::size_t{layer} * owners.n_experts() + expert);
    }
  }
  const std::vector<std::uint8_t> chosen = arena::choose_hot_part(candidates, slab_bytes);
  const auto leg = static_cast<std::uint16_t>(owners.n_legs());
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] != 0) table[places[i]] = leg;
  std::vector<std::string> names = owners.leg_names();
  names.push_back(legs::card_leg_name(card.facts().index));
  return legs::OwnerTable(owners.epoch(), std::move(names), owners.n_layers(), owners.n_experts(), std::move(table));
}

}  // namespace terrace::planner
