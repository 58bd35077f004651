#include "kernels/card/expert_card.h"

#include <fmt/core.h>

#include <cstring>

namespace terrace::kernels {
namespace {

Error no_trunk(const CardFacts& facts) {
  return Error(ErrorCode::kUnsupported, fmt::format("card {} ({}) computes no trunks", facts.index, facts.name));
}

}  // namespace

Status CardWriter::queue(std::byte* card, std::span<const std::byte> data) {
  return queue(card, data.size(), [&](std::uint64_t at, std::span<std::byte> piece) {
    std::memcpy(piece.data(), data.data() + at, piece.size());
    return Status();
  });
}

Status CardWriter::write(std::byte* card, std::span<const std::byte> data) {
  TERRACE_RETURN_IF_ERROR(queue(card, data));
  return finish();
}

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
