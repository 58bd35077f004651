#include "tier_node/app/budget.h"

#include <fmt/core.h>

#include "common/base/units.h"
#include "kernels/card/options.h"

namespace terrace::node {

Result<Budget> choose_budget(const NodeOptions& options, const kernels::ExpertCard* card, std::uint64_t available) {
  if (options.ram && card != nullptr && card->facts().integrated) {
    const std::uint64_t vram = card->facts().budget_bytes;
    TERRACE_ASSIGN_OR_RETURN(const std::uint64_t rest, kernels::ram_beside_cards(options.ram->value, vram));
    return Budget{rest, fmt::format("--ram {} less the card's {}", format_size(options.ram->value), format_size(vram)),
                  available};
  }
  if (options.ram)
    return Budget{options.ram->value, fmt::format("--ram; {} available", format_size(available)), available};
  const auto share = static_cast<std::uint64_t>(static_cast<double>(available) * kDefaultRamShare);
  return Budget{share, fmt::format("three quarters of the {} available", format_size(available)), available};
}

}  // namespace terrace::node
