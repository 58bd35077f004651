// One split of attention, key by key (docs/numerics.md 8).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops/attention.h"
#include "kernels/cpu/ops/scalar.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::scalar {
namespace {

// Value `index` of a block, widened.
float load(const std::byte* block, std::size_t index, KvType type) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, block + index * sizeof(value), sizeof(value));
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, block + index * sizeof(half), sizeof(half));
  return f16_to_f32(half);
}

void score(const AttentionArgs& args, const AttentionSplit& split, const float* q, float* scores) {
  for (std::size_t t = 0; t < split.n_keys; ++t) {
    const std::byte* block = args.k[split.first_block + t / kKvBlockPositions];
    float s = 0;
    for (std::size_t d = 0; d < args.head_dim; ++d)
      s = std::fma(load(block, d * kKvBlockPositions + t % kKvBlockPositions, args.type), q[d], s);
    scores[t] = s * args.scale;
  }
}

void add_values(const AttentionArgs& args, const AttentionSplit& split, const float* p, float* values) {
  std::fill_n(values, args.value_dim, 0.0f);
  for (std::size_t t = 0; t < split.n_keys; ++t) {
    const std::byte* block = args.v[split.first_block + t / kKvBlockPositions];
    const std::size_t row = t % kKvBlockPositions * args.value_dim;
    for (std::size_t d = 0; d < args.value_dim; ++d)
      values[d] = std::fma(p[t], load(block, row + d, args.type), values[d]);
  }
}

void attend_split(const AttentionArgs& args, const AttentionSplit& split) {
  for (std::size_t h = 0; h < args.n_heads; ++h) {
    float* p = split.scores + h * kSplitPositions;
    score(args, split, args.q + h * args.head_dim, p);
    const float max = *std::max_element(p, p + split.n_keys);
    Lanes lanes;
    for (std::size_t t = 0; t < split.n_keys; ++t) {
      p[t] = exp(p[t] - max);
      lanes.of(t) += p[t];
    }
    split.max[h] = max;
    split.sum[h] = lanes.total();
    add_values(args, split, p, split.values + h * args.value_dim);
  }
}

void merge(float* o, const float* other, float a, float b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) o[i] = std::fma(o[i], a, other[i] * b);
}

void divide(float* o, float l, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) o[i] = o[i] / l;
}

constexpr AttentionParts kParts = {attend_split, merge, divide};

}  // namespace

void attend(const AttentionArgs& args) { attend_in_splits(kParts, args); }
void attend_splits(const AttentionArgs& args, const AttentionSplits& splits) {
  kernels::attend_splits(kParts, args, splits);
}
void merge_splits(const AttentionArgs& args, float* states) { kernels::merge_splits(kParts, args, states); }

}  // namespace terrace::kernels::scalar
