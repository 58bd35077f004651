// One split of attention for all query heads of a group, over vectors of any width. For avx2*.cpp and avx512*.cpp only;
// everything here has internal linkage (float_bits.h says why).
//
// Keys and values are read once from memory: a block of 32 positions (8 KiB of f16 K at head_dim 128) stays in the
// first-level cache while tiles of heads pass over it. A tile is H heads by N vectors, so that H * N independent
// chains of fma hide its latency (4 cycles, two a cycle: 8 chains) and each widened vector serves H heads. Loops over
// H and N are unrolled by pragma: at -O2 the compiler would keep the accumulators in memory.
//
// V is a struct of vector functions (Vector8 in avx2_vector.h, Vector16 in avx512_vector.h); dimensions are multiples
// of 8, so V8, the one of eight floats, does what does not fill a V.
#pragma once

#include "kernels/cpu/ops/args.h"
#include "kernels/cpu/ops/attention.h"

namespace terrace::kernels {
namespace {

struct StoredF16 {
  using Stored = std::uint16_t;
  template <class V>
  static typename V::Floats load(const Stored* x) {
    return V::load_f16(x);
  }
};
struct StoredF32 {
  using Stored = float;
  template <class V>
  static typename V::Floats load(const Stored* x) {
    return V::load(x);
  }
};

// ---- scores ---------------------------------------------------------------------------------------------------------

// Scores of N * 8 keys for H heads: one chain over d for each key and head.
template <class V, class Kv, int H, int N>
inline void score_tile(const AttentionArgs& args, const typename Kv::Stored* k, const float* q, float* scores) {
  typename V::Floats s[H][N];
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) s[h][n] = V::zero();
  for (std::size_t d = 0; d < args.head_dim; ++d, k += kKvBlockPositions) {
    typename V::Floats keys[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) keys[n] = Kv::template load<V>(k + n * V::kWidth);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const typename V::Floats query = V::set(q[h * args.head_dim + d]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) s[h][n] = V::fmadd(keys[n], query, s[h][n]);
    }
  }
  const typename V::Floats scale = V::set(args.scale);
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) V::store(scores + h * kSplitPositions + n * V::kWidth, V::mul(s[h][n], scale));
}

template <class V, class Kv, int H, int N>
inline void score_block(const AttentionArgs& args, const typename Kv::Stored* k, std::size_t head, float* scores) {
  for (std::size_t key = 0; key < kKvBlockPositions; key += N * V::kWidth)
    score_tile<V, Kv, H, N>(args, k + key, args.q + head * args.head_dim, scores + head * kSplitPositions + key);
}

// Calls tile.operator()<H>(head) over all heads, most at once first. Sixteen accumulators of 512 bits leave as many
// registers free; of 256 bits there are sixteen registers in all.
template <class V, class Tile>
inline void for_each_head_tile(std::size_t n_heads, const Tile& tile) {
  std::size_t head = 0;
  if constexpr (V::kRegisters == 32)
    for (; head + 8 <= n_heads; head += 8) tile.template operator()<8>(head);
  for (; head + 4 <= n_heads; head += 4) tile.template operator()<4>(head);
  for (; head + 2 <= n_heads; head += 2) tile.template operator()<2>(head);
  for (; head < n_heads; ++head) tile.template operator()<1>(head);
}

// Whole blocks: what lies behind the last key is overwritten by soften().
template <class V, class Kv>
void score(const AttentionArgs& args, const AttentionSplit& split) {
  constexpr int kVectors = kKvBlockPositions / V::kWidth;
  for (std::size_t first = 0; first < split.n_keys; first += kKvBlockPositions) {
    const std::byte* block = args.k[split.first_block + first / kKvBlockPositions];
    const auto* k = reinterpret_cast<const typename Kv::Stored*>(block);
    float* scores = split.scores + first;
    for_each_head_tile<V>(args.n_heads, [&]<int H>(std::size_t head) {
      score_block<V, Kv, H, H >= 4 ? 2 : kVectors>(args, k, head, scores);
    });
  }
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// Turns n scores into p = EXP(score - max), in place; gives max and the sum of p. p has room for whole 16 lanes.
template <class V>
inline void soften(float* p, std::size_t n, float* max_out, float* sum_out) {
  const std::size_t n_padded = (n + 15) / 16 * 16;
  for (std::size_t t = n; t < n_padded; ++t) p[t] = p[0];  // changes no maximum
  typename V::Floats max = V::load(p);
  for (std::size_t t = V::kWidth; t < n_padded; t += V::kWidth) max = V::max(max, V::load(p + t));
  *max_out = V::largest(max);
  max = V::set(*max_out);
  for (std::size_t t = 0; t < n_padded; t += V::kWidth) V::store(p + t, V::exp(V::sub(V::load(p + t), max)));
  for (std::size_t t = n; t < n_padded; ++t) p[t] = 0;  // p > 0, so no lane is -0 and adding +0 leaves it alone
  *sum_out = V::sum_in_lanes(p, n_padded);
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Adds n_keys <= 32 positions of one block to N * 8 values of H heads.
template <class V, class Kv, int H, int N>
inline void value_tile(const AttentionArgs& args, const typename Kv::Stored* v, const float* p, std::size_t n_keys,
                       float* values) {
  typename V::Floats o[H][N];
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) o[h][n] = V::load(values + h * args.value_dim + n * V::kWidth);
  for (std::size_t t = 0; t < n_keys; ++t, v += args.value_dim) {
    typename V::Floats row[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) row[n] = Kv::template load<V>(v + n * V::kWidth);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const typename V::Floats weight = V::set(p[h * kSplitPositions + t]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) o[h][n] = V::fmadd(weight, row[n], o[h][n]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) V::store(values + h * args.value_dim + n * V::kWidth, o[h][n]);
}

template <class V, class V8, class Kv, int H, int N>
inline void value_block(const AttentionArgs& args, const typename Kv::Stored* v, const float* p, std::size_t n_keys,
                        float* values) {
  std::size_t d = 0;
  for (; d + N * V::kWidth <= args.value_dim; d += N * V::kWidth)
    value_tile<V, Kv, H, N>(args, v + d, p, n_keys, values + d);
  for (; d + V::kWidth <= args.value_dim; d += V::kWidth) value_tile<V, Kv, H, 1>(args, v + d, p, n_keys, values + d);
  for (; d < args.value_dim; d += V8::kWidth) value_tile<V8, Kv, H, 1>(args, v + d, p, n_keys, values + d);
}

template <class V, class V8, class Kv>
void add_values(const AttentionArgs& args, const AttentionSplit& split) {
  const std::size_t dim = args.value_dim;
  for (std::size_t i = 0; i < args.n_heads * dim; ++i) split.values[i] = 0;
  for (std::size_t first = 0; first < split.n_keys; first += kKvBlockPositions) {
    const std::byte* block = args.v[split.first_block + first / kKvBlockPositions];
    const auto* v = reinterpret_cast<const typename Kv::Stored*>(block);
    const std::size_t left = split.n_keys - first;
    const std::size_t n_keys = left < kKvBlockPositions ? left : kKvBlockPositions;
    const float* p = split.scores + first;
    for_each_head_tile<V>(args.n_heads, [&]<int H>(std::size_t head) {
      value_block<V, V8, Kv, H, H >= 4 ? 2 : 4>(args, v, p + head * kSplitPositions, n_keys, split.values + head * dim);
    });
  }
}

// ---- the parts ------------------------------------------------------------------------------------------------------

template <class V, class V8, class Kv>
void attend_split_of(const AttentionArgs& args, const AttentionSplit& split) {
  score<V, Kv>(args, split);
  for (std::size_t h = 0; h < args.n_heads; ++h)
    soften<V>(split.scores + h * kSplitPositions, split.n_keys, split.max + h, split.sum + h);
  add_values<V, V8, Kv>(args, split);
}

template <class V, class V8>
void attend_split(const AttentionArgs& args, const AttentionSplit& split) {
  if (args.type == KvType::kF16) {
    attend_split_of<V, V8, StoredF16>(args, split);
  } else {
    attend_split_of<V, V8, StoredF32>(args, split);
  }
}

// n is value_dim: a multiple of 8.
template <class V>
void merge(float* o, const float* other, float a, float b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += V::kWidth)
    V::store(o + i, V::fmadd(V::load(o + i), V::set(a), V::mul(V::load(other + i), V::set(b))));
}

template <class V>
void divide(float* o, float l, std::size_t n) {
  for (std::size_t i = 0; i < n; i += V::kWidth) V::store(o + i, V::div(V::load(o + i), V::set(l)));
}

template <class V, class V8>
constexpr AttentionParts kAttentionParts = {attend_split<V, V8>, merge<V8>, divide<V8>};

}  // namespace
}  // namespace terrace::kernels
