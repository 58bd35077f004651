// One head of Q, K or V by a warp, in shared memory: norm, RoPE and the checks, for the kernels that finish heads.
#pragma once

#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/kv/store.cuh"
#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kHeadLanes = 32;

__device__ __forceinline__ std::uint32_t head_lane() { return threadIdx.x % kHeadLanes; }

// A lane's first weights of a norm, brought before the kernels before this one have ended.
inline constexpr std::uint32_t kOwnHeadWeights = 4;
struct HeadWeights {
  float w[kOwnHeadWeights];
};
__device__ __forceinline__ HeadWeights bring_head_weights(const float* norm, std::uint32_t n) {
  HeadWeights own;
#pragma unroll
  for (std::uint32_t j = 0; j < kOwnHeadWeights; ++j) {
    const std::uint32_t d = head_lane() + j * kHeadLanes;
    own.w[j] = norm != nullptr && d < n ? norm[d] : 0.0f;
  }
  return own;
}

// The cosines and sines of a row's RoPE.
struct Turn {
  const float* cosines;
  const float* sines;
};
__device__ __forceinline__ Turn turn_of(const HeadsArgs& args, std::uint32_t row) {
  const std::size_t first = std::size_t{row} * (args.n_rot / 2);
  return {args.cosines + first, args.sines + first};
}

// One head in shared memory, a warp's own.
struct Head {
  float* values;
  std::uint32_t n;

  __device__ __forceinline__ void load(const float* from) const {
    for (std::uint32_t d = head_lane(); d < n; d += kHeadLanes) values[d] = from[d];
    __syncwarp();
  }
  __device__ __forceinline__ void norm(const HeadWeights& own, const float* w, float eps) const {
    float lane = 0.0f;
    if (head_lane() < kLanes)
      for (std::uint32_t i = head_lane(); i < n; i += kLanes) lane = fused(values[i], values[i], lane);
    const float sum = __shfl_sync(~0u, sum_of_lanes(lane), 0);
    const float r = 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
#pragma unroll
    for (std::uint32_t j = 0; j < kOwnHeadWeights; ++j)
      if (const std::uint32_t d = head_lane() + j * kHeadLanes; d < n) values[d] = (values[d] * r) * own.w[j];
    for (std::uint32_t d = head_lane() + kOwnHeadWeights * kHeadLanes; d < n; d += kHeadLanes)
      values[d] = (values[d] * r) * w[d];
    __syncwarp();
  }
  __device__ __forceinline__ void rotate(const HeadsArgs& args, const Turn& turn) const {
    const std::uint32_t n_pairs = args.n_rot / 2;
    const bool neox = args.pairing == RopePairing::kNeox;
    for (std::uint32_t p = head_lane(); p < n_pairs; p += kHeadLanes) {
      float& first = neox ? values[p] : values[2 * p];
      float& second = neox ? values[p + n_pairs] : values[2 * p + 1];
      const float cosine = turn.cosines[p], sine = turn.sines[p];
      const float x0 = first, x1 = second;
      first = x0 * cosine - x1 * sine;
      second = x0 * sine + x1 * cosine;
    }
    __syncwarp();
  }
  // The vote of the warp; where it fails the head becomes zeros.
  template <class Good>
  __device__ __forceinline__ void check(Good good, std::uint32_t* failure, std::uint32_t code) const {
    bool all = true;
    for (std::uint32_t d = head_lane(); d < n; d += kHeadLanes) all = all && good(values[d]);
    if (__all_sync(~0u, all)) return;
    if (head_lane() == 0) atomicMin(failure, code);
    for (std::uint32_t d = head_lane(); d < n; d += kHeadLanes) values[d] = 0.0f;
    __syncwarp();
  }
};

// Query, key or value head `number` of a row as it is used from then on: what is not finite, or cannot be stored, is
// noted and becomes zeros.
__device__ __forceinline__ void make_query(const HeadsArgs& args, const Head& head, const HeadWeights& own,
                                           const Turn& turn, std::uint32_t row, std::uint32_t number) {
  head.load(args.q + (std::size_t{row} * args.n_heads + number) * head.n);
  if (args.q_norm != nullptr) head.norm(own, args.q_norm, args.eps);
  head.rotate(args, turn);
  head.check([](float value) { return is_finite(value); }, args.failures + row, args.queries_code);
}

__device__ __forceinline__ void make_key(const HeadsArgs& args, const Head& head, const HeadWeights& own,
                                         const Turn& turn, std::uint32_t row, std::uint32_t number) {
  const KvType type = args.cache.type;
  head.load(args.k + (std::size_t{row} * args.cache.n_kv_heads + number) * head.n);
  if (args.k_norm != nullptr) head.norm(own, args.k_norm, args.eps);
  head.rotate(args, turn);
  head.check([type](float value) { return storable(value, type); }, args.failures + row, args.keys_code);
}

__device__ __forceinline__ void make_value(const HeadsArgs& args, const Head& head, std::uint32_t row,
                                           std::uint32_t number) {
  const KvType type = args.cache.type;
  head.load(args.v + (std::size_t{row} * args.cache.n_kv_heads + number) * head.n);
  head.check([type](float value) { return storable(value, type); }, args.failures + row, args.values_code);
}

}  // namespace terrace::kernels::cuda
