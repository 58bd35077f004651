// The node's card: its memory as a store of slabs.
#pragma once

#include <memory>

#include "common/arena/slab_store.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "kernels/card/expert_card.h"
#include "kernels/card/options.h"
#include "tier_node/session/card_memory.h"

namespace terrace::node {

// All null without --gpu. In the order in which they depend on each other.
struct NodeCard {
  std::unique_ptr<kernels::ExpertCard> card;
  std::unique_ptr<CardMemory> memory;
  std::unique_ptr<arena::SlabStore> store;
};

// kInvalidArgument: as kernels::read_orders(), or more than one card. A node has one: a second store of another card
// could promise memory in which no slab finds room, and a coordinator deals rows to nodes as well as a node to cards.
Status check(const kernels::CardRequest& request);

// Takes the card's memory and proves one expert of every type there. Errors say what to do: as
// kernels::open_cards() and kernels::check_card(). `request` has passed check().
Result<NodeCard> open_card(const kernels::CardRequest& request, const Logger& log);

}  // namespace terrace::node
