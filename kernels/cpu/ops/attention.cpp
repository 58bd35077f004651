#include "kernels/cpu/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/ops/scalar.h"

namespace terrace::kernels {
namespace {

// A group's state after some splits, in the caller's output and scratch.
struct State {
  float* max;
  float* sum;
  float* values;
};

void merge(const AttentionParts& parts, const AttentionArgs& args, const State& into, const State& from) {
  for (std::size_t h = 0; h < args.n_heads; ++h) {
    const float max = std::max(into.max[h], from.max[h]);
    const float a = scalar::exp(into.max[h] - max);
    const float b = scalar::exp(from.max[h] - max);
    into.max[h] = max;
    into.sum[h] = std::fma(into.sum[h], a, from.sum[h] * b);
    parts.merge(into.values + h * args.value_dim, from.values + h * args.value_dim, a, b, args.value_dim);
  }
}

}  // namespace

std::size_t attention_scratch_floats(std::size_t n_heads, std::size_t value_dim) {
  return n_heads * (kSplitPositions + value_dim + 4);  // scores, one split's values, two pairs of (max, sum)
}

void attend_in_splits(const AttentionParts& parts, const AttentionArgs& args) {
  float* scores = args.scratch;
  float* split_values = scores + args.n_heads * kSplitPositions;
  float* sums = split_values + args.n_heads * args.value_dim;
  const State total{sums, sums + args.n_heads, args.out};
  const State next{sums + 2 * args.n_heads, sums + 3 * args.n_heads, split_values};

  for (std::size_t first = 0; first < args.n_keys; first += kSplitPositions) {
    const State& state = first == 0 ? total : next;
    const std::size_t n_keys = std::min(kSplitPositions, args.n_keys - first);
    parts.split(args, {first / kKvBlockPositions, n_keys, scores, state.max, state.sum, state.values});
    if (first != 0) merge(parts, args, total, next);
  }
  if (args.sinks != nullptr) {  // merges last, as a split of one key without a value
    std::copy_n(args.sinks, args.n_heads, next.max);
    std::fill_n(next.sum, args.n_heads, 1.0f);
    std::fill_n(next.values, args.n_heads * args.value_dim, 0.0f);
    merge(parts, args, total, next);
  }
  for (std::size_t h = 0; h < args.n_heads; ++h)
    parts.divide(args.out + h * args.value_dim, total.sum[h], args.value_dim);
}

}  // namespace terrace::kernels
