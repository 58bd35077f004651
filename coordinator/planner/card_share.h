// The part of this machine's experts that its card takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "coordinator/legs/owner_table.h"
#include "kernels/card/expert_card.h"
#include "kernels/executor/executor.h"

namespace terrace::planner {

// A card that a run computes with.
struct CardInput {
  std::string name;                 // of its leg
  std::string description;          // "card 0 (NVIDIA H200)"
  std::uint64_t budget_bytes = 0;   // taken from the card
  std::uint64_t slab_bytes = 0;     // of it, for slabs
  std::uint64_t staging_bytes = 0;  // pinned host memory of an executor
};
CardInput describe(const kernels::ExpertCard& card);

// `owners` with one more leg, the card's: as much of the host's (arena::choose_hot_part()) as fits there and can be
// computed there. layers: their kernels, one a layer.
legs::OwnerTable give_hot_part(const legs::OwnerTable& owners, const kernels::ExpertCard& card,
                               std::span<const kernels::ExpertKernels> layers);

}  // namespace terrace::planner
