#include "kernels/cpu/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/ops/scalar.h"

namespace terrace::kernels {
namespace {

// A group's state after some splits.
struct State {
  float* max;
  float* sum;
  float* values;
};

// Largest scores, sums, values: as attention_state_floats() counts them.
State state_at(const AttentionArgs& args, float* floats) {
  return {floats, floats + args.n_heads, floats + 2 * args.n_heads};
}

// What lies in AttentionArgs::scratch.
struct Scratch {
  float* scores;  // [n_heads, kSplitPositions]
  State total;    // its values are the caller's output
  State next;
};

Scratch scratch_of(const AttentionArgs& args) {
  float* next = args.scratch + args.n_heads * kSplitPositions;
  float* total = next + attention_state_floats(args.n_heads, args.value_dim);
  return {args.scratch, {total, total + args.n_heads, args.out}, state_at(args, next)};
}

void compute(const AttentionParts& parts, const AttentionArgs& args, std::size_t split, float* scores,
             const State& state) {
  const std::size_t first = split * kSplitPositions;
  const std::size_t n_keys = std::min(kSplitPositions, args.n_keys - first);
  parts.split(args, {first / kKvBlockPositions, n_keys, scores, state.max, state.sum, state.values});
}

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

// After the last split. A sink merges as a split of one key without a value; `next` is free.
void finish(const AttentionParts& parts, const AttentionArgs& args, const State& total, const State& next) {
  if (args.sinks != nullptr) {
    std::copy_n(args.sinks, args.n_heads, next.max);
    std::fill_n(next.sum, args.n_heads, 1.0f);
    std::fill_n(next.values, args.n_heads * args.value_dim, 0.0f);
    merge(parts, args, total, next);
  }
  for (std::size_t h = 0; h < args.n_heads; ++h)
    parts.divide(args.out + h * args.value_dim, total.sum[h], args.value_dim);
}

}  // namespace

std::size_t attention_scratch_floats(std::size_t n_heads, std::size_t value_dim) {
  return n_heads * kSplitPositions + attention_state_floats(n_heads, value_dim) + 2 * n_heads;  // struct Scratch
}

void attend_in_splits(const AttentionParts& parts, const AttentionArgs& args) {
  const Scratch scratch = scratch_of(args);
  compute(parts, args, 0, scratch.scores, scratch.total);
  for (std::size_t split = 1; split < attention_splits(args.n_keys); ++split) {
    compute(parts, args, split, scratch.scores, scratch.next);
    merge(parts, args, scratch.total, scratch.next);
  }
  finish(parts, args, scratch.total, scratch.next);
}

void attend_splits(const AttentionParts& parts, const AttentionArgs& args, const AttentionSplits& splits) {
  const std::size_t stride = attention_state_floats(args.n_heads, args.value_dim);
  for (std::size_t i = 0; i < splits.n; ++i)
    compute(parts, args, splits.first + i, args.scratch, state_at(args, splits.states + i * stride));
}

void merge_splits(const AttentionParts& parts, const AttentionArgs& args, float* states) {
  const std::size_t stride = attention_state_floats(args.n_heads, args.value_dim);
  State total = state_at(args, states);
  std::copy_n(total.values, args.n_heads * args.value_dim, args.out);
  total.values = args.out;
  for (std::size_t split = 1; split < attention_splits(args.n_keys); ++split)
    merge(parts, args, total, state_at(args, states + split * stride));
  finish(parts, args, total, scratch_of(args).next);
}

}  // namespace terrace::kernels
