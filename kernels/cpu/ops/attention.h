// How attention is cut (docs/numerics.md 8): splits of 256 positions that an ISA computes, and their merging, which
// is written once. A plain header for the ISA files.
#pragma once

#include <cstddef>

#include "kernels/cpu/ops/args.h"

namespace terrace::kernels {

// One split, for all query heads of the group.
struct AttentionSplit {
  std::size_t first_block = 0;
  std::size_t n_keys = 0;   // 1 .. kSplitPositions, from the first block's first position
  float* scores = nullptr;  // [n_heads, kSplitPositions]: working memory
  float* max = nullptr;     // [n_heads] out: the largest score
  float* sum = nullptr;     // [n_heads] out: sum of p = EXP(score - max), in 16 lanes by position
  float* values = nullptr;  // [n_heads, value_dim] out: sum of p * v in rising position
};

struct AttentionParts {
  void (*split)(const AttentionArgs& args, const AttentionSplit& split);
  // o[i] = fma(o[i], a, other[i] * b)
  void (*merge)(float* o, const float* other, float a, float b, std::size_t n);
  // o[i] = o[i] / l
  void (*divide)(float* o, float l, std::size_t n);
};

// The whole of attention from one ISA's parts, or its two steps: contracts in ops.h.
void attend_in_splits(const AttentionParts& parts, const AttentionArgs& args);
void attend_splits(const AttentionParts& parts, const AttentionArgs& args, const AttentionSplits& splits);
void merge_splits(const AttentionParts& parts, const AttentionArgs& args, float* states);

}  // namespace terrace::kernels
