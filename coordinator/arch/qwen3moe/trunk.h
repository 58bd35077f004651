// qwen3moe (Qwen3-30B-A3B, 235B-A22B): RMS-normed GQA attention with per-head norms and RoPE, then routed SwiGLU
// experts, softmax of all and the best renormalised. Source: docs/formats.md; to the bit: docs/numerics.md 8.
#pragma once

#include <memory>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/dense_groups.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/routed_experts.h"
#include "kernels/card/card_trunk.h"

namespace terrace::arch::qwen3moe {

// What the file says the model is, all keys and tensors checked; nothing of the weights is read. Errors name the file
// and the key or tensor: kNotFound, kCorrupt, kUnsupported, kInvalidArgument (an option the model cannot meet).
Result<ModelInfo> describe(const gguf::File& file, const TrunkOptions& options);

// `file`, `experts` and `parallel` outlive the trunk. Errors as describe().
Result<std::unique_ptr<Trunk>> make_trunk(const gguf::File& file, const TrunkOptions& options,
                                          legs::RoutedExperts& experts, Parallel& parallel);

// What that trunk multiplies with. Errors as describe().
Result<DenseGroups> dense_groups(const gguf::File& file, const TrunkOptions& options);

// That trunk for a card. kUnsupported: activations are not quantised. Other errors as describe().
Result<kernels::CardTrunkModel> card_model(const gguf::File& file, const TrunkOptions& options);

}  // namespace terrace::arch::qwen3moe
