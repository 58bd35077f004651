#include "tier_node/app/card.h"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/units.h"
#include "kernels/card/open_cards.h"
#include "kernels/cuda/experts/open.h"
#include "kernels/selftest/card.h"

namespace terrace::node {

Status check(const kernels::CardRequest& request) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<kernels::CardOrder> orders, kernels::read_orders(request));
  if (orders.size() <= 1) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--gpu names {} cards, and a node computes with one; start a terrace-node for each, with a "
                           "--listen and a part of --ram of its own",
                           orders.size()));
}

Result<NodeCard> open_card(const kernels::CardRequest& request, const Logger& log) {
  TERRACE_ASSIGN_OR_RETURN(kernels::OpenedCards opened, kernels::open_cards(request, [](auto index, auto budget) {
                             return kernels::cuda::open_expert_card(index, budget);
                           }));
  for (const std::string& line : opened.missing) log.warn("{}", line);
  NodeCard node;
  if (opened.cards.empty()) return node;
  node.card = std::move(opened.cards.front());
  TERRACE_RETURN_IF_ERROR(kernels::check_card(*node.card));
  TERRACE_ASSIGN_OR_RETURN(node.memory, CardMemory::make(*node.card));
  node.store =
      std::make_unique<arena::SlabStore>(arena::StoreOptions{node.memory->total_bytes(), {}, node.memory.get()});
  const kernels::CardFacts& facts = node.card->facts();
  log.info("card {} ({}): {} of its {} taken{}, {} of them for experts; self check passed", facts.index, facts.name,
           format_size(facts.budget_bytes), format_size(facts.total_bytes), request.vram.empty() ? "" : " (--vram)",
           format_size(node.memory->total_bytes()));
  return node;
}

}  // namespace terrace::node
