#include "kernels/card/expert_card.h"

#include <fmt/core.h>

namespace terrace::kernels {
namespace {

Error no_trunk(const CardFacts& facts) {
  return Error(ErrorCode::kUnsupported, fmt::format("card {} ({}) computes no trunks", facts.index, facts.name));
}

}  // namespace

Result<double> ExpertCard::read_rate() const {
  return Error(ErrorCode::kUnsupported,
               fmt::format("card {} ({}): how fast its memory is read is not measured", facts().index, facts().name));
}

Result<std::uint64_t> ExpertCard::trunk_bytes(const CardTrunkModel&, const CardTrunkLimits&) const {
  return no_trunk(facts());
}

std::uint64_t ExpertCard::trunk_pinned_bytes(const CardTrunkModel&, const CardTrunkLimits&) const { return 0; }

Result<std::unique_ptr<CardTrunk>> ExpertCard::make_trunk(CardTrunkModel, const CardTrunkLimits&, std::span<std::byte>,
                                                          const LoadProgress&) {
  return no_trunk(facts());
}

}  // namespace terrace::kernels
