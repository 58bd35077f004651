// What the residual's kernels share: the addition, the norm's sum, and what a cluster of thread blocks does of them.
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/cuda/activations/quantize.cuh"
#include "kernels/cuda/combine/fixed.cuh"
#include "kernels/cuda/device/overlap.cuh"
#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {

inline constexpr std::uint32_t kClusterBlocks = 8, kClusterThreads = 256;

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
#define TERRACE_CLUSTER __cluster_dims__(kClusterBlocks, 1, 1)
#else
#define TERRACE_CLUSTER
#endif

// As let_next_begin(), where there are no sums to be waited for: thread blocks that wait behind this kernel hold shared
// memory, which whoever computes the sums may need on the same card.
__device__ __forceinline__ void let_next_begin_unless_waiting(const ResidualArgs& args) {
  if (args.sums_flag.word == nullptr) let_next_begin();
}

// Until the sums are there. All threads.
__device__ __forceinline__ void wait_for_sums(const ResidualArgs& args) {
  if (args.sums_flag.word == nullptr) return;
  if (threadIdx.x == 0) {
    const std::uint32_t step = *args.sums_flag.step;
    std::uint32_t word;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(args.sums_flag.word) : "memory");
    } while (word != step);
  }
  __syncthreads();
  let_next_begin();
}

// What the experts gave for the row's i-th value. Eight terms are read before the first is used: their loads are under
// way together, which branches between them would prevent. A choice without a pair reads what is not used.
__device__ __forceinline__ std::int64_t sum_of_experts(const ResidualArgs& args, std::uint32_t row, std::uint32_t i,
                                                       const ToFixed& to_fixed, bool& good) {
  constexpr std::uint32_t kAtOnce = 8;
  const ExpertOutputs& from = args.experts;
  std::int64_t sum = 0;
  for (std::uint32_t first = 0; first < from.n_slots; first += kAtOnce) {
    float terms[kAtOnce];
#pragma unroll
    for (std::uint32_t s = 0; s < kAtOnce; ++s) {
      const bool is_slot = first + s < from.n_slots;
      const std::size_t slot = std::size_t{row} * from.n_slots + (is_slot ? first + s : 0);
      const std::int32_t pair = from.slots[slot];
      const float weighted = from.weights[slot] * from.out[std::size_t(max(pair, 0)) * args.n + i];
      terms[s] = is_slot && pair >= 0 ? weighted : 0.0f;
    }
#pragma unroll
    for (const float term : terms) {
      good = good & to_fixed.takes(term);
      sum += to_fixed(term);
    }
  }
  return sum;
}

// The row's i-th value with what is added to it; `good`: the sum over experts is in range.
__device__ __forceinline__ float added(const ResidualArgs& args, float x, std::uint32_t row, std::uint32_t i,
                                       const ToFixed& to_fixed, bool& good) {
  const std::size_t at = std::size_t{row} * args.n + i;
  if (args.delta != nullptr) return x + args.delta[at];
  if (args.sums == nullptr && args.experts.out == nullptr) return x;
  std::int64_t sum = 0;
  if (args.sums != nullptr)
    sum = args.sums_flag.word == nullptr ? args.sums[at] : __ldcv(reinterpret_cast<const long long*>(args.sums + at));
  if (args.experts.out != nullptr) sum += sum_of_experts(args, row, i, to_fixed, good);
  good = good && is_total(sum);
  return x + from_fixed_value(sum, args.shift);
}

// 1 / sqrt(mean square + eps), to every thread.
__device__ __forceinline__ float inverse_rms(const float* values, std::uint32_t n, float eps, float* shared_r) {
  if (threadIdx.x < 32) {
    float lane = 0.0f;
    const std::uint32_t own = threadIdx.x;
    const int terms = own < kLanes && own < n ? static_cast<int>((n - own + kLanes - 1) / kLanes) : 0;
#pragma unroll 16
    for (int i = 0; i < terms; ++i) lane = fused(values[own + i * kLanes], values[own + i * kLanes], lane);
    const float sum = sum_of_lanes(lane);
    if (threadIdx.x == 0) *shared_r = 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
  }
  __syncthreads();
  return *shared_r;
}

__device__ __forceinline__ void fail(const ResidualArgs& args, std::uint32_t x_row, std::uint32_t code) {
  if (threadIdx.x == 0) atomicMin(args.failures + x_row, code);
}

// A thread's first weights of the norm of values [first, first + n), brought before the kernels before this one have
// ended; `threads`: of the thread block.
template <std::uint32_t kOwn>
struct NormWeights {
  float w[kOwn];
};
template <std::uint32_t kOwn>
__device__ __forceinline__ NormWeights<kOwn> bring_norm(const ResidualArgs& args, std::uint32_t first, std::uint32_t n,
                                                        std::uint32_t threads) {
  NormWeights<kOwn> own;
#pragma unroll
  for (std::uint32_t j = 0; j < kOwn; ++j) {
    const std::uint32_t i = threadIdx.x + j * threads;
    own.w[j] = args.w != nullptr && i < n ? args.w[first + i] : 0.0f;
  }
  return own;
}
// Values [first, first + n) of the row that lies in `values`, normed in place; zeros, and the row has failed, where
// they are not finite.
template <std::uint32_t kOwn>
__device__ __forceinline__ void norm_part(const ResidualArgs& args, std::uint32_t x_row, const NormWeights<kOwn>& own,
                                          float* values, std::uint32_t first, std::uint32_t n, std::uint32_t threads,
                                          float* shared_r) {
  const float r = inverse_rms(values, args.n, args.eps, shared_r);
  bool finite = true;
  const auto scale = [&](std::uint32_t i, float weight) {
    const float value = (values[i] * r) * weight;
    values[i] = value;
    finite = finite && is_finite(value);
  };
#pragma unroll
  for (std::uint32_t j = 0; j < kOwn; ++j)
    if (const std::uint32_t i = threadIdx.x + j * threads; i < n) scale(first + i, own.w[j]);
  for (std::uint32_t i = threadIdx.x + kOwn * threads; i < n; i += threads) scale(first + i, args.w[first + i]);
  if (__syncthreads_and(finite) != 0) return;
  fail(args, x_row, args.normed_code);
  for (std::uint32_t i = threadIdx.x; i < n; i += threads) values[first + i] = 0.0f;
  __syncthreads();
}

#if __CUDA_ARCH__ >= 900
// x = x + what is added, of this thread block's part of a row; then the whole row lies in every thread block's `values`
// [n]. All thread blocks of the cluster run; ends with a barrier of all.
__device__ __forceinline__ void add_in_cluster(const ResidualArgs& args, std::uint32_t row, std::uint32_t x_row,
                                               float* values) {
  const auto cluster = cooperative_groups::this_cluster();
  const std::uint32_t part = args.n / kClusterBlocks, first = cluster.block_rank() * part;
  float* x = args.x + std::size_t{x_row} * args.n;
  const bool adds = args.delta != nullptr || args.sums != nullptr || args.experts.out != nullptr;
  const ToFixed to_fixed(args.shift);
  bool finite = true, good = true;
  wait_for_sums(args);
  for (std::uint32_t i = first + threadIdx.x; i < first + part; i += kClusterThreads) {
    const float value = added(args, x[i], row, i, to_fixed, good);
    if (adds) x[i] = value;
#pragma unroll
    for (std::uint32_t block = 0; block < kClusterBlocks; ++block) cluster.map_shared_rank(values, block)[i] = value;
    finite = finite && is_finite(value);
  }
  if (__syncthreads_and(good) == 0) fail(args, x_row, args.experts_code);
  if (__syncthreads_and(finite) == 0 && adds) fail(args, x_row, args.added_code);
  cluster.sync();
}

// This thread block's part of the normed row in every form that is wanted.
__device__ __forceinline__ void write_part(const ResidualArgs& args, std::uint32_t row, const float* values) {
  const std::uint32_t part = args.n / kClusterBlocks;
  const std::uint32_t first = cooperative_groups::this_cluster().block_rank() * part;
  if (args.h != nullptr)
    for (std::uint32_t i = first + threadIdx.x; i < first + part; i += kClusterThreads)
      args.h[std::size_t{row} * args.n + i] = values[i];
#pragma unroll
  for (const CardRowsOut& out : args.out)
    if (out.rows != nullptr)
      write_card_values(out.activation, values + first, first, part, out.rows + row * out.stride, args.n);
}
#endif

// Parts are whole blocks of every class; of many rows each has enough with one thread block.
inline bool goes_in_clusters(const Stream& stream, const ResidualArgs& args) {
  constexpr std::uint32_t kMostRows = 8;
  return overlaps_launches(stream.card()) && args.n_rows <= kMostRows && args.n % (kClusterBlocks * 256) == 0;
}

}  // namespace terrace::kernels::cuda
