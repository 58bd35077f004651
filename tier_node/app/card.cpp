#include "tier_node/app/card.h"

#include <optional>

#include "common/base/units.h"
#include "kernels/cuda/experts/open.h"
#include "kernels/selftest/card.h"

namespace terrace::node {

Result<NodeCard> open_card(const kernels::CardRequest& request, const Logger& log) {
  TERRACE_RETURN_IF_ERROR(kernels::check(request));
  NodeCard node;
  if (!request.gpu) return node;
  std::optional<std::uint64_t> budget;
  if (request.vram) budget = request.vram->value;
  auto opened = kernels::cuda::open_expert_card(*request.gpu, budget);
  if (!opened.ok() && kernels::goes_on_without(request, opened.error())) {
    log.warn("{}", kernels::without_card_text(request, opened.error()));
    return node;
  }
  if (!opened.ok()) return kernels::no_card_error(opened.error());
  node.card = std::move(*opened);
  TERRACE_RETURN_IF_ERROR(kernels::check_card(*node.card));
  TERRACE_ASSIGN_OR_RETURN(node.memory, CardMemory::make(*node.card));
  node.store =
      std::make_unique<arena::SlabStore>(arena::StoreOptions{node.memory->total_bytes(), {}, node.memory.get()});
  const kernels::CardFacts& facts = node.card->facts();
  log.info("card {} ({}): {} of its {} taken{}, {} of them for experts; self check passed", facts.index, facts.name,
           format_size(facts.budget_bytes), format_size(facts.total_bytes), request.vram ? " (--vram)" : "",
           format_size(node.memory->total_bytes()));
  return node;
}

}  // namespace terrace::node
