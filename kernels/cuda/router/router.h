// Which experts a row goes to, on a card: route() of kernels/cpu/ops, equal by == (docs/numerics.md 8).
// Threads  As Stream. Launches only.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// Probabilities and keys of a row lie in shared memory.
inline constexpr std::uint32_t kMaxRoutedExperts = 4096;

struct RouteArgs {
  const float* logits = nullptr;  // card memory [n_rows, n_experts]; finite
  std::uint32_t n_rows = 0;
  std::uint32_t n_experts = 0;   // at most kMaxRoutedExperts
  RouterRule rule;               // selection_bias in card memory
  std::uint16_t* ids = nullptr;  // card memory [n_rows, top_k], in selection order
  float* weights = nullptr;      // card memory [n_rows, top_k]
};

// kInvalidArgument: shapes; kInternal: the launch was refused. Both name the sizes.
Status route(const Stream& stream, const RouteArgs& args);

}  // namespace terrace::kernels::cuda
