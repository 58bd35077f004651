// qwen3moe on a card: the model as kernels/card knows trunks, and the trunk over it.
#pragma once

#include <memory>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/arch/qwen3moe/model.h"
#include "coordinator/legs/routed_experts.h"

namespace terrace::arch::qwen3moe {

// `model` is the file's; options.on_card is set; options.card_memory is of trunk_bytes(). Errors as make_trunk(), or
// the card's.
Result<std::unique_ptr<Trunk>> make_card_trunk(const gguf::File& file, Model model, const TrunkOptions& options,
                                               const kernels::Ops& ops, legs::RoutedExperts& experts,
                                               Parallel& parallel);

}  // namespace terrace::arch::qwen3moe
