// A row's choice of experts by one warp, and the pairs of a single row.
#pragma once

#include "kernels/cuda/router/choice.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {

// Shared memory of a row: keys, probabilities, ids.
constexpr std::uint32_t row_words(std::uint32_t n_experts, std::uint32_t top_k) {
  return 2 * n_experts + (top_k + 1) / 2;
}

inline constexpr std::uint32_t kOwnKeys = 8;  // of a lane, in registers

// A number that rises with the key; -0 counts as +0. No finite key gives 0.
__device__ __forceinline__ std::uint32_t rising(float key) {
  const std::uint32_t bits = __float_as_uint(key + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The top_k largest keys, of equal ones the lowest id first; the sum of their p in that order.
__device__ __forceinline__ float take_best(const float* keys, const float* p, std::uint32_t n, std::uint32_t top_k,
                                           std::uint16_t* ids) {
  std::uint32_t own[kOwnKeys];
#pragma unroll
  for (std::uint32_t j = 0; j < kOwnKeys; ++j) {
    const std::uint32_t i = warp_lane() + j * kWarp;
    own[j] = i < n ? rising(keys[i]) : 0;
  }
  float sum = 0.0f;
  for (std::uint32_t k = 0; k < top_k; ++k) {
    std::uint32_t best = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < kOwnKeys; ++j) best = max(best, own[j]);
    best = __reduce_max_sync(~0u, best);
    std::uint32_t id = ~0u;
#pragma unroll
    for (std::uint32_t j = kOwnKeys; j-- > 0;)
      if (own[j] == best) id = warp_lane() + j * kWarp;
    id = __reduce_min_sync(~0u, id);
#pragma unroll
    for (std::uint32_t j = 0; j < kOwnKeys; ++j)
      if (warp_lane() + j * kWarp == id) own[j] = 0;
    sum = sum + p[id];
    if (warp_lane() == 0) ids[k] = static_cast<std::uint16_t>(id);
  }
  return sum;
}

// The same for any number of experts.
__device__ __forceinline__ float take_next(const float* keys, const float* p, std::uint32_t n, std::uint32_t top_k,
                                           std::uint16_t* ids) {
  Choice last{0.0f, 0};
  float sum = 0.0f;
  for (std::uint32_t k = 0; k < top_k; ++k) {
    last = next_choice(keys, n, last, k == 0);
    sum = sum + p[last.id];
    if (warp_lane() == 0) ids[k] = static_cast<std::uint16_t>(last.id);
  }
  return sum;
}

// Logits [n_experts] become probabilities and keys in `shared`, row_words() of this warp. Where the row's ids lie
// there.
__device__ __forceinline__ const std::uint16_t* choose_row(const ChooseArgs& args, const float* logits,
                                                           std::uint32_t row, float* shared) {
  const std::uint32_t n = args.n_experts, lane = warp_lane();
  float* keys = shared;
  float* p = shared + n;
  bool finite = true;
  for (std::uint32_t i = lane; i < n; i += kWarp) {
    keys[i] = logits[i];
    finite = finite && is_finite(keys[i]);
  }
  if (!__all_sync(~0u, finite)) {
    if (lane == 0) atomicMin(args.failures + row, args.router_code);
    for (std::uint32_t i = lane; i < n; i += kWarp) keys[i] = 0.0f;
  }
  __syncwarp();
  warp_softmax(keys, n, p);
  __syncwarp();
  auto* const ids = reinterpret_cast<std::uint16_t*>(shared + 2 * n);
  const float sum =
      n <= kWarp * kOwnKeys ? take_best(keys, p, n, args.top_k, ids) : take_next(keys, p, n, args.top_k, ids);
  __syncwarp();
  for (std::uint32_t k = lane; k < args.top_k; k += kWarp) {
    const float weight = p[ids[k]] / sum;
    args.weights[std::size_t{row} * args.top_k + k] = args.scaled ? weight * args.scale : weight;
    args.ids[std::size_t{row} * args.top_k + k] = ids[k];
  }
  return ids;
}

// The pairs of a single row are groups of one. ids and slabs: shared memory.
__device__ __forceinline__ void pairs_of_one_row(const ChooseArgs& args, const std::uint16_t* ids,
                                                 const CardSlab* slabs) {
  const std::uint32_t n = args.top_k;
  for (std::uint32_t k = warp_lane(); k < n; k += kWarp) {
    const CardSlab slab = slabs[ids[k]];
    const std::uint32_t count = slab.gate != nullptr ? 1 : 0;
    args.gate_up[k] = {slab.gate, k, count};
    args.gate_up[n + k] = {slab.up, n + k, count};
    args.down[k] = {slab.down, k, count};
    args.x_rows[k] = args.x_rows[n + k] = count != 0 ? 0 : kPairElsewhere;
    args.slots[k] = count != 0 ? static_cast<std::int32_t>(k) : -1;
  }
}

}  // namespace terrace::kernels::cuda
