// The greedy token on a card: the largest logit, of equal ones the lowest id (docs/numerics.md 8).
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

struct GreedyArgs {
  const float* logits = nullptr;  // card memory [n_rows, n]
  std::size_t stride = 0;         // floats between rows
  std::uint32_t n_rows = 0;       // at most 65,535
  std::uint32_t n = 0;
  std::uint64_t* best = nullptr;    // card memory [n_rows]: working memory
  std::uint32_t* tokens = nullptr;  // card memory [n_rows]; kNotFiniteToken where a logit is not finite
};
inline constexpr std::uint32_t kNotFiniteToken = 0xffffffff;

// kInvalidArgument: shapes; kInternal: the launch was refused. Both name the sizes.
Status greedy_tokens(const Stream& stream, const GreedyArgs& args);

}  // namespace terrace::kernels::cuda
