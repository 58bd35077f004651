// One split of attention for all query heads of a group.
//
// Keys and values are read once from memory: a block of 32 positions (8 KiB of f16 K at head_dim 128) stays in the
// first-level cache while tiles of heads pass over it. A tile is H heads by N vectors, so that H * N independent
// chains of fma hide its latency (4 cycles, two a cycle: 8 chains) and each widened vector serves H heads. Loops over
// H and N are unrolled by pragma: at -O2 the compiler would keep the accumulators in memory.
#include "kernels/cpu/ops/attention.h"
#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {
namespace {

struct F16 {
  using Stored = std::uint16_t;
  static __m256 load(const Stored* x) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))); }
};
struct F32 {
  using Stored = float;
  static __m256 load(const Stored* x) { return _mm256_loadu_ps(x); }
};

// ---- scores ---------------------------------------------------------------------------------------------------------

// Scores of N * 8 keys for H heads: one chain over d for each key and head.
template <class Kv, int H, int N>
inline void score_tile(const AttentionArgs& args, const typename Kv::Stored* k, const float* q, float* scores) {
  __m256 s[H][N];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) s[h][n] = _mm256_setzero_ps();
  for (std::size_t d = 0; d < args.head_dim; ++d, k += kKvBlockPositions) {
    __m256 keys[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) keys[n] = Kv::load(k + n * kWidth);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 query = _mm256_broadcast_ss(q + h * args.head_dim + d);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) s[h][n] = _mm256_fmadd_ps(keys[n], query, s[h][n]);
    }
  }
  const __m256 scale = _mm256_set1_ps(args.scale);
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      _mm256_storeu_ps(scores + h * kSplitPositions + n * kWidth, _mm256_mul_ps(s[h][n], scale));
}

template <class Kv, int H, int N>
inline void score_block(const AttentionArgs& args, const typename Kv::Stored* k, std::size_t head, float* scores) {
  for (std::size_t key = 0; key < kKvBlockPositions; key += N * kWidth)
    score_tile<Kv, H, N>(args, k + key, args.q + head * args.head_dim, scores + head * kSplitPositions + key);
}

// Whole blocks: what lies behind the last key is overwritten by soften().
template <class Kv>
void score(const AttentionArgs& args, const AttentionSplit& split) {
  for (std::size_t first = 0; first < split.n_keys; first += kKvBlockPositions) {
    const std::byte* block = args.k[split.first_block + first / kKvBlockPositions];
    const auto* k = reinterpret_cast<const typename Kv::Stored*>(block);
    float* scores = split.scores + first;
    std::size_t head = 0;
    for (; head + 4 <= args.n_heads; head += 4) score_block<Kv, 4, 2>(args, k, head, scores);
    for (; head + 2 <= args.n_heads; head += 2) score_block<Kv, 2, 4>(args, k, head, scores);
    for (; head < args.n_heads; ++head) score_block<Kv, 1, 4>(args, k, head, scores);
  }
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// Turns n scores into p = EXP(score - max), in place; gives max and the sum of p. p has room for whole 16 lanes.
inline void soften(float* p, std::size_t n, float* max_out, float* sum_out) {
  const std::size_t n_padded = (n + 15) / 16 * 16;
  for (std::size_t t = n; t < n_padded; ++t) p[t] = p[0];  // changes no maximum
  __m256 max = _mm256_loadu_ps(p);
  for (std::size_t t = kWidth; t < n_padded; t += kWidth) max = _mm256_max_ps(max, _mm256_loadu_ps(p + t));
  *max_out = largest_lane(max);
  max = _mm256_set1_ps(*max_out);
  for (std::size_t t = 0; t < n_padded; t += kWidth)
    _mm256_storeu_ps(p + t, exp8(_mm256_sub_ps(_mm256_loadu_ps(p + t), max)));
  for (std::size_t t = n; t < n_padded; ++t) p[t] = 0;  // p > 0, so no lane is -0 and adding +0 leaves it alone
  __m256 low = _mm256_setzero_ps();
  __m256 high = _mm256_setzero_ps();
  for (std::size_t t = 0; t < n_padded; t += 2 * kWidth) {
    low = _mm256_add_ps(low, _mm256_loadu_ps(p + t));
    high = _mm256_add_ps(high, _mm256_loadu_ps(p + t + kWidth));
  }
  *sum_out = total_of_lanes(low, high);
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Adds n_keys <= 32 positions of one block to N * 8 values of H heads.
template <class Kv, int H, int N>
inline void value_tile(const AttentionArgs& args, const typename Kv::Stored* v, const float* p, std::size_t n_keys,
                       float* values) {
  __m256 o[H][N];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) o[h][n] = _mm256_loadu_ps(values + h * args.value_dim + n * kWidth);
  for (std::size_t t = 0; t < n_keys; ++t, v += args.value_dim) {
    __m256 row[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) row[n] = Kv::load(v + n * kWidth);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 weight = _mm256_broadcast_ss(p + h * kSplitPositions + t);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) o[h][n] = _mm256_fmadd_ps(weight, row[n], o[h][n]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) _mm256_storeu_ps(values + h * args.value_dim + n * kWidth, o[h][n]);
}

template <class Kv, int H, int N>
inline void value_block(const AttentionArgs& args, const typename Kv::Stored* v, const float* p, std::size_t n_keys,
                        float* values) {
  std::size_t d = 0;
  for (; d + N * kWidth <= args.value_dim; d += N * kWidth) value_tile<Kv, H, N>(args, v + d, p, n_keys, values + d);
  for (; d < args.value_dim; d += kWidth) value_tile<Kv, H, 1>(args, v + d, p, n_keys, values + d);
}

template <class Kv>
void add_values(const AttentionArgs& args, const AttentionSplit& split) {
  const std::size_t dim = args.value_dim;
  for (std::size_t i = 0; i < args.n_heads * dim; i += kWidth) _mm256_storeu_ps(split.values + i, _mm256_setzero_ps());
  for (std::size_t first = 0; first < split.n_keys; first += kKvBlockPositions) {
    const std::byte* block = args.v[split.first_block + first / kKvBlockPositions];
    const auto* v = reinterpret_cast<const typename Kv::Stored*>(block);
    const std::size_t left = split.n_keys - first;
    const std::size_t n_keys = left < kKvBlockPositions ? left : kKvBlockPositions;
    const float* p = split.scores + first;
    float* values = split.values;
    std::size_t head = 0;
    for (; head + 4 <= args.n_heads; head += 4)
      value_block<Kv, 4, 2>(args, v, p + head * kSplitPositions, n_keys, values + head * dim);
    for (; head + 2 <= args.n_heads; head += 2)
      value_block<Kv, 2, 4>(args, v, p + head * kSplitPositions, n_keys, values + head * dim);
    for (; head < args.n_heads; ++head)
      value_block<Kv, 1, 4>(args, v, p + head * kSplitPositions, n_keys, values + head * dim);
  }
}

// ---- the parts ------------------------------------------------------------------------------------------------------

template <class Kv>
void attend_split_of(const AttentionArgs& args, const AttentionSplit& split) {
  score<Kv>(args, split);
  for (std::size_t h = 0; h < args.n_heads; ++h)
    soften(split.scores + h * kSplitPositions, split.n_keys, split.max + h, split.sum + h);
  add_values<Kv>(args, split);
}

void attend_split(const AttentionArgs& args, const AttentionSplit& split) {
  if (args.type == KvType::kF16) {
    attend_split_of<F16>(args, split);
  } else {
    attend_split_of<F32>(args, split);
  }
}

// n is value_dim: a multiple of 8.
void merge(float* o, const float* other, float a, float b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __m256 added = _mm256_mul_ps(_mm256_loadu_ps(other + i), _mm256_set1_ps(b));
    _mm256_storeu_ps(o + i, _mm256_fmadd_ps(_mm256_loadu_ps(o + i), _mm256_set1_ps(a), added));
  }
}

void divide(float* o, float l, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kWidth)
    _mm256_storeu_ps(o + i, _mm256_div_ps(_mm256_loadu_ps(o + i), _mm256_set1_ps(l)));
}

constexpr AttentionParts kParts = {attend_split, merge, divide};

}  // namespace

void attend(const AttentionArgs& args) { attend_in_splits(kParts, args); }
void attend_splits(const AttentionArgs& args, const AttentionSplits& splits) {
  kernels::attend_splits(kParts, args, splits);
}
void merge_splits(const AttentionArgs& args, float* states) { kernels::merge_splits(kParts, args, states); }

}  // namespace terrace::kernels::avx2
