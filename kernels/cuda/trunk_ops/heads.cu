// A warp to a head, four heads to a thread block; the head lies in shared memory.
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/exact_math.h"
#include "kernels/cuda/kv/store.cuh"
#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint32_t kWarp = 32, kHeadsOfBlock = 4;

__device__ __forceinline__ std::uint32_t lane_of() { return threadIdx.x % kWarp; }

// A lane's first weights of a norm, brought before the kernels before this one have ended.
constexpr std::uint32_t kOwnWeights = 4;
struct OwnWeights {
  float w[kOwnWeights];
};
__device__ __forceinline__ OwnWeights bring_weights(const float* norm, std::uint32_t n) {
  OwnWeights own;
#pragma unroll
  for (std::uint32_t j = 0; j < kOwnWeights; ++j) {
    const std::uint32_t d = lane_of() + j * kWarp;
    own.w[j] = norm != nullptr && d < n ? norm[d] : 0.0f;
  }
  return own;
}

// One head in shared memory, a warp's own.
struct Head {
  float* values;
  std::uint32_t n;

  __device__ __forceinline__ void load(const float* from) const {
    for (std::uint32_t d = lane_of(); d < n; d += kWarp) values[d] = from[d];
    __syncwarp();
  }
  __device__ __forceinline__ void norm(const OwnWeights& own, const float* w, float eps) const {
    float lane = 0.0f;
    if (lane_of() < kLanes)
      for (std::uint32_t i = lane_of(); i < n; i += kLanes) lane = fused(values[i], values[i], lane);
    const float sum = __shfl_sync(~0u, sum_of_lanes(lane), 0);
    const float r = 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
#pragma unroll
    for (std::uint32_t j = 0; j < kOwnWeights; ++j)
      if (const std::uint32_t d = lane_of() + j * kWarp; d < n) values[d] = (values[d] * r) * own.w[j];
    for (std::uint32_t d = lane_of() + kOwnWeights * kWarp; d < n; d += kWarp) values[d] = (values[d] * r) * w[d];
    __syncwarp();
  }
  __device__ __forceinline__ void rotate(const HeadsArgs& args, std::uint32_t row) const {
    const std::uint32_t n_pairs = args.n_rot / 2;
    const bool neox = args.pairing == RopePairing::kNeox;
    for (std::uint32_t p = lane_of(); p < n_pairs; p += kWarp) {
      float& first = neox ? values[p] : values[2 * p];
      float& second = neox ? values[p + n_pairs] : values[2 * p + 1];
      const float cosine = args.cosines[row * n_pairs + p], sine = args.sines[row * n_pairs + p];
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
    for (std::uint32_t d = lane_of(); d < n; d += kWarp) all = all && good(values[d]);
    if (__all_sync(~0u, all)) return;
    if (lane_of() == 0) atomicMin(failure, code);
    for (std::uint32_t d = lane_of(); d < n; d += kWarp) values[d] = 0.0f;
    __syncwarp();
  }
};

__device__ __forceinline__ void finish_query(const HeadsArgs& args, const Head& head, const OwnWeights& own,
                                             std::uint32_t row, std::uint32_t number) {
  float* q = args.q + (std::size_t{row} * args.n_heads + number) * head.n;
  head.load(q);
  if (args.q_norm != nullptr) head.norm(own, args.q_norm, args.eps);
  head.rotate(args, row);
  head.check([](float value) { return is_finite(value); }, args.failures + row, args.queries_code);
  for (std::uint32_t d = lane_of(); d < head.n; d += kWarp) q[d] = head.values[d];
}

__device__ __forceinline__ void finish_key(const HeadsArgs& args, const Head& head, const OwnWeights& own,
                                           std::uint32_t row, std::uint32_t number, const KvPlace& place) {
  const KvType type = args.cache.type;
  head.load(args.k + (std::size_t{row} * args.cache.n_kv_heads + number) * head.n);
  if (args.k_norm != nullptr) head.norm(own, args.k_norm, args.eps);
  head.rotate(args, row);
  head.check([type](float value) { return storable(value, type); }, args.failures + row, args.keys_code);
  for (std::uint32_t d = lane_of(); d < head.n; d += kWarp) place.store_k(args.cache, d, head.values[d]);
}

__device__ __forceinline__ void finish_value(const HeadsArgs& args, const Head& head, std::uint32_t row,
                                             std::uint32_t number, const KvPlace& place) {
  const KvType type = args.cache.type;
  head.load(args.v + (std::size_t{row} * args.cache.n_kv_heads + number) * head.n);
  head.check([type](float value) { return storable(value, type); }, args.failures + row, args.values_code);
  for (std::uint32_t d = lane_of(); d < head.n; d += kWarp) place.store_v(args.cache, d, head.values[d]);
}

// Grid: (fours of all heads: q, k, v, rows).
__global__ void __launch_bounds__(kWarp* kHeadsOfBlock) finish_heads_kernel(const HeadsArgs args) {
  extern __shared__ float shared[];
  let_next_begin();
  const std::uint32_t row = blockIdx.y, n_kv = args.cache.n_kv_heads;
  const std::uint32_t key_dim = args.cache.head_dim, value_dim = args.cache.value_dim;
  std::uint32_t number = blockIdx.x * kHeadsOfBlock + threadIdx.x / kWarp;
  float* values = shared + threadIdx.x / kWarp * max(key_dim, value_dim);
  const OwnWeights own = bring_weights(number < args.n_heads ? args.q_norm : args.k_norm, key_dim);
  wait_for_previous();
  if (number < args.n_heads) return finish_query(args, {values, key_dim}, own, row, number);
  number -= args.n_heads;
  if (number >= 2 * n_kv) return;
  const KvPlace place = kv_place(args.cache, args.streams[row], args.positions[row], number % n_kv);
  if (number < n_kv) return finish_key(args, {values, key_dim}, own, row, number, place);
  finish_value(args, {values, value_dim}, row, number - n_kv, place);
}

}  // namespace

Status finish_heads(const Stream& stream, const HeadsArgs& args) {
  const KvCache& cache = args.cache;
  const std::initializer_list<LaunchSize> sizes = {{"rows", args.n_rows},
                                                   {"heads", args.n_heads},
                                                   {"KV heads", cache.n_kv_heads},
                                                   {"head values", cache.head_dim},
                                                   {"V values", cache.value_dim}};
  const std::uint32_t widest = cache.head_dim > cache.value_dim ? cache.head_dim : cache.value_dim;
  if (args.n_rows == 0 || args.n_rows > kMaxGridRows || args.n_heads == 0 || cache.n_kv_heads == 0 || widest == 0 ||
      widest > kMaxHeadValues || args.n_rot % 2 != 0 || args.n_rot > cache.head_dim)
    return invalid_shape("finishing heads", sizes);
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  const dim3 grid(divide_up(args.n_heads + 2 * cache.n_kv_heads, kHeadsOfBlock), args.n_rows);
  launch_overlapped(overlaps_launches(stream.card()), finish_heads_kernel, grid, kWarp * kHeadsOfBlock,
                    kHeadsOfBlock * widest * sizeof(float), stream.native(), args);
  return after_launch(stream, "finishing heads", sizes);
}

}  // namespace terrace::kernels::cuda
