// The kernels of attention, which attention.h chooses from, and what they share: where a split's results lie, and how
// stored values are read.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {

template <class Stored>
__device__ __forceinline__ float widened(Stored value) {
  if constexpr (sizeof(Stored) == sizeof(float)) {
    return value;
  } else {
    return __half2float(value);
  }
}

__host__ __device__ __forceinline__ std::uint32_t splits_of(const AttentionArgs& args) {
  return static_cast<std::uint32_t>((args.max_keys + kSplitPositions - 1) / kSplitPositions);
}

// Results of (row, head) over one split, or over all of them so far: values [value_dim], then max and sum. `n_splits`
// of them lie behind each other.
__device__ __forceinline__ float* partial(const AttentionArgs& args, std::uint32_t n_splits, std::uint32_t row,
                                          std::uint32_t head, std::uint32_t split) {
  return args.scratch + ((std::size_t{row} * args.n_heads + head) * n_splits + split) * (args.cache.value_dim + 2);
}

// Keys of the row that lie in the split which begins at first_key.
__device__ __forceinline__ std::uint32_t keys_in_split(const AttentionArgs& args, std::uint32_t row,
                                                       std::uint32_t first_key) {
  const std::uint32_t n_keys = args.n_keys[row];
  return n_keys <= first_key ? 0 : min(n_keys - first_key, static_cast<std::uint32_t>(kSplitPositions));
}

// o, l and m of one more split, or of the sink, into those before it: the factors of both.
struct Merged {
  float max, sum;
  struct Factors {
    float before, other;
  };
  __device__ __forceinline__ Factors add(float other_max, float other_sum) {
    const float new_max = fmaxf(max, other_max);
    const Factors by{exp_exact(max - new_max), exp_exact(other_max - new_max)};
    max = new_max;
    sum = fused(sum, by.before, other_sum * by.other);
    return by;
  }
  static __device__ __forceinline__ float merge(float o, float other_o, Factors by) {
    return fused(o, by.before, other_o * by.other);
  }
};

// What one split, or all so far, gave for one dimension of a (row, head).
struct SplitResult {
  float o, max, sum;
};
// The result of a (row, head) for one dimension: its splits, of(0) .. of(n - 1), and the sink in rising order.
template <class Of>
__device__ __forceinline__ float merged(const AttentionArgs& args, std::uint32_t head, std::uint32_t n, Of of) {
  const SplitResult first = of(0);
  Merged state{first.max, first.sum};
  float o = first.o;
#pragma unroll 4
  for (std::uint32_t split = 1; split < n; ++split) {
    const SplitResult next = of(split);
    const Merged::Factors by = state.add(next.max, next.sum);
    o = Merged::merge(o, next.o, by);
  }
  if (args.sinks != nullptr) {
    const Merged::Factors by = state.add(args.sinks[head], 1.0f);
    o = Merged::merge(o, 0.0f, by);
  }
  return o / state.sum;
}

// splits.cu: few rows, or heads of any size. Writes one partial for each split of a (row, head).
void launch_splits(const Stream& stream, const AttentionArgs& args);

// prompt.cu: many rows, and heads of 64 or 128 values, on cards that have PromptShared for a thread block (plan.h).
// How results lie in args.scratch: `whole`, one partial a (row, head), of all its splits merged; else one a split.
void launch_prompt_splits(const Stream& stream, const AttentionArgs& args, bool whole);

}  // namespace terrace::kernels::cuda
