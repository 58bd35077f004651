// The cards that --gpu asks for, opened in its order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "kernels/card/expert_card.h"
#include "kernels/card/options.h"

namespace terrace::kernels {

struct OpenedCards {
  std::vector<std::unique_ptr<ExpertCard>> cards;  // as --gpu names them, without those that are missing
  std::vector<std::string> missing;                // a line to tell for each that the program goes on without

  // What of this machine's memory they take, for it is theirs as well.
  std::uint64_t host_bytes() const;
};

// kernels::cuda::open_expert_card(), or what stands in for it.
using OpenCard = FunctionRef<Result<std::unique_ptr<ExpertCard>>(std::uint32_t, std::optional<std::uint64_t>)>;

// A program goes on without a card where it was asked to (--gpu-optional) and this machine has no card or driver, or
// the build no kernels for that card. A card that is too small, or whose number is wrong, is an error. Errors say what
// to do.
Result<OpenedCards> open_cards(const CardRequest& request, OpenCard open);

}  // namespace terrace::kernels
