// The greedy token on a card: the largest logit, of equal ones the lowest id (docs/numerics.md 8); and whether all of
// them are finite, since each is looked at.
// Threads  As Stream. Launches only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// Logit and id of the best so far as one number, the better the lower, so that thread blocks meet in any order.
using GreedyKey = std::uint64_t;
inline constexpr GreedyKey kNoLogitSeen = ~GreedyKey{0};  // all bytes 0xff: what a row begins with

struct GreedyArgs {
  const float* logits = nullptr;  // card memory [n_rows, n]
  std::size_t stride = 0;         // floats between rows
  std::uint32_t n_rows = 0;       // at most 65,535
  std::uint32_t n = 0;
  GreedyKey* best = nullptr;  // card memory [n_rows], kNoLogitSeen before
  // Where a row's logit that is not finite is noted (kernels/cuda/activations); null: nowhere.
  std::uint32_t* failures = nullptr;
  std::uint32_t code = 0;
  const std::uint32_t* rows = nullptr;  // card memory [n_rows]: row of the step; null: the same number
};

// kInvalidArgument: shapes; kInternal: the launch was refused. Both name the sizes.
Status find_greedy(const Stream& stream, const GreedyArgs& args);

// The token of a row's key; nothing where a logit was not finite.
constexpr std::optional<std::uint32_t> greedy_token(GreedyKey best) {
  if (best == 0) return std::nullopt;
  return static_cast<std::uint32_t>(best);
}

}  // namespace terrace::kernels::cuda
