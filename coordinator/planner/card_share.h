// What this machine's cards take of its work: the first the trunk, or at least its dense matrices, which every token
// reads; then each the hottest of the experts that are left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/base/result.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/owner_table.h"
#include "kernels/card/expert_card.h"
#include "kernels/executor/executor.h"

namespace terrace::planner {

// A card that a run computes with.
struct CardInput {
  std::string name;                 // of its leg
  std::string description;          // "card 0 (NVIDIA H200)"
  std::uint64_t budget_bytes = 0;   // taken from the card
  std::uint64_t slab_bytes = 0;     // of it, for weights
  std::uint64_t dense_bytes = 0;    // of those, for the trunk's matrices and values; 0: they are not on the card
  std::uint64_t cache_bytes = 0;    // of those, for keys and values; 0: they are not on the card
  std::uint64_t staging_bytes = 0;  // pinned host memory for it, that of its loading included
};
// trunk_pinned_bytes: of a trunk there.
CardInput describe(const kernels::ExpertCard& card, std::uint64_t dense_bytes, std::uint64_t cache_bytes = 0,
                   std::uint64_t trunk_pinned_bytes = 0);

// Where a card's trunk is to lie.
struct TrunkOnCard {
  kernels::CardTrunkLimits limits;
  std::uint64_t bytes = 0;         // of slab memory
  std::uint64_t cache_bytes = 0;   // of those
  std::uint64_t pinned_bytes = 0;  // of this machine's memory
};
// The whole trunk, if it leaves at least half of the slab memory to experts. Its cache holds what the streams ask for:
// a context for each; where that is more than an eighth of the budget, so much, but never less than one context that
// was asked for (options.context), or 4,096 positions. Errors say why the trunk stays on the CPU: kUnsupported as
// ExpertCard::trunk_bytes(), kOutOfMemory with the numbers.
Result<TrunkOnCard> trunk_on(const kernels::ExpertCard& card, const kernels::CardTrunkModel& model,
                             const arch::ModelInfo& info, const arch::TrunkOptions& options);

// What the trunk's dense matrices take of the card; 0: they do not fit, or one has no kernel there, and stay here.
std::uint64_t dense_bytes_on(const kernels::ExpertCard& card, const arch::ModelInfo& model);

// `owners` with one more leg, the card's: as much of the host's (arena::choose_hot_part()) as fits into `slab_bytes`
// there and can be computed there. layers: their kernels, one a layer. Of several cards each takes of what those before
// it have left; all of them have a part of every layer, and compute at the same time.
legs::OwnerTable give_hot_part(const legs::OwnerTable& owners, const kernels::ExpertCard& card,
                               std::uint64_t slab_bytes, std::span<const kernels::ExpertKernels> layers);

// Whether every expert of every layer is this leg's: only then a trunk there has no layer to come back with.
bool owns_all(const legs::OwnerTable& owners, std::size_t leg);

}  // namespace terrace::planner
