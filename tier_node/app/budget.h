// How much of this machine's memory a node takes, and why so much.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "kernels/card/expert_card.h"
#include "tier_node/app/options.h"

namespace terrace::node {

struct Budget {
  std::uint64_t bytes = 0;
  std::string why;
  std::uint64_t available = 0;  // at start
};

// available: of this machine's memory, when the card's was taken: where that is the host's, it does not count any more.
// --ram is for both then. card: null without one. kOutOfMemory: it takes all of --ram; the text has both numbers.
Result<Budget> choose_budget(const NodeOptions& options, const kernels::ExpertCard* card, std::uint64_t available);

}  // namespace terrace::node
