#include "coordinator/legs/owner_table.h"

#include <algorithm>
#include <utility>

namespace terrace::legs {

OwnerTable::OwnerTable(std::uint64_t epoch, std::vector<std::string> leg_names, std::uint32_t n_layers,
                       std::uint32_t n_experts, std::vector<std::uint16_t> owners)
    : epoch_(epoch),
      leg_names_(std::move(leg_names)),
      n_layers_(n_layers),
      n_experts_(n_experts),
      owners_(std::move(owners)) {
  TERRACE_CHECK(owners_.size() == std::size_t{n_layers_} * n_experts_, "owner table of the wrong size");
  TERRACE_CHECK(std::all_of(owners_.begin(), owners_.end(), [&](std::uint16_t leg) { return leg < n_legs(); }),
                "an expert is owned by a leg that does not exist");
}

std::span<const std::uint16_t> OwnerTable::owners(std::uint32_t layer) const {
  return std::span(owners_).subspan(std::size_t{layer} * n_experts_, n_experts_);
}

std::vector<std::uint16_t> OwnerTable::experts(std::size_t leg, std::uint32_t layer) const {
  std::vector<std::uint16_t> found;
  const auto row = owners(layer);
  for (std::uint32_t expert = 0; expert < n_experts_; ++expert)
    if (row[expert] == leg) found.push_back(static_cast<std::uint16_t>(expert));
  return found;
}

std::uint64_t OwnerTable::n_slabs(std::size_t leg) const {
  return static_cast<std::uint64_t>(std::count(owners_.begin(), owners_.end(), static_cast<std::uint16_t>(leg)));
}

}  // namespace terrace::legs
