// Softmax and the next best choice of one row by one warp: with a few hundred experts one warp's shuffles are quicker
// than a block's barriers.
#pragma once

#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/lanes.cuh"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kWarp = 32;
__device__ __forceinline__ std::uint32_t warp_lane() { return threadIdx.x % kWarp; }

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int apart = 1; apart < static_cast<int>(kWarp); apart *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, apart));
  return x;
}

__device__ __forceinline__ void warp_softmax(const float* logits, std::uint32_t n, float* p) {
  float max = logits[0];
  for (std::uint32_t i = warp_lane(); i < n; i += kWarp) max = fmaxf(max, logits[i]);
  max = warp_max(max);
  for (std::uint32_t i = warp_lane(); i < n; i += kWarp) p[i] = exp_exact(logits[i] - max);
  __syncwarp();
  float lane = 0.0f;
  if (warp_lane() < kLanes)
    for (std::uint32_t i = warp_lane(); i < n; i += kLanes) lane = lane + p[i];
  const float sum = __shfl_sync(~0u, sum_of_lanes(lane), 0);
  for (std::uint32_t i = warp_lane(); i < n; i += kWarp) p[i] = p[i] / sum;
}

struct Choice {
  float key;
  std::uint32_t id;  // n_experts: none
};

// The largest key, of equal keys the lowest id, among those that come behind `last` in that order.
__device__ __forceinline__ Choice next_choice(const float* keys, std::uint32_t n, Choice last, bool first) {
  Choice best{0.0f, n};
  for (std::uint32_t i = warp_lane(); i < n; i += kWarp) {
    const float key = keys[i];
    const bool behind = first || key < last.key || (key == last.key && i > last.id);
    if (behind && (best.id == n || key > best.key)) best = {key, i};
  }
#pragma unroll
  for (int apart = 1; apart < static_cast<int>(kWarp); apart *= 2) {
    const Choice other{__shfl_xor_sync(~0u, best.key, apart), __shfl_xor_sync(~0u, best.id, apart)};
    const bool better =
        other.id != n && (best.id == n || other.key > best.key || (other.key == best.key && other.id < best.id));
    if (better) best = other;
  }
  return best;
}

}  // namespace terrace::kernels::cuda
