// What the K-types' steps for avx2_blocks.h share: all have 256 unsigned codes, unpacked 64 at a step, and a small
// integer scale for each 32 or 16 of them. For avx2*.cpp only; internal linkage: float_bits.h says why.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/avx2_blocks.h"
#include "kernels/cpu/avx2_k_scales.h"

namespace terrace::kernels {
namespace {

// Bit `from` of every byte at bit `to`, and zeros around it.
inline __m256i move_bit(__m256i bytes, int from, int to) {
  const __m256i moved = from < to ? _mm256_slli_epi16(bytes, to - from) : _mm256_srli_epi16(bytes, from - to);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(1 << to)));
}

struct KType {
  using XBlock = BlockA8x256;
  static constexpr int kSteps = 4;

  struct Slice {       // values 64 * step .. 64 * step + 63
    __m256i code[2];   // 0..63
    __m256i scale[2];  // int16, -128..127
  };

  // The largest are Q6_K's: two products at most 2 * 63 * 127 = 16002, times a scale and in pairs below 2^22, a lane's
  // sum below 2^26.
  static __m256i add(__m256i sum, const Slice& w, const XBlock& x, int step) {
    const __m256i pairs_0 = _mm256_maddubs_epi16(w.code[0], load_bytes(x.q + 64 * step));
    const __m256i pairs_1 = _mm256_maddubs_epi16(w.code[1], load_bytes(x.q + 64 * step + 32));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_0, w.scale[0]));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_1, w.scale[1]));
  }

  static __m128i totals(const __m256i sum[4]) { return sum_each_epi32(sum); }
};

// Q4_K and Q5_K: eight sub-blocks of 32, each with a scale and a min.
struct KTypeWithMins : KType {
  using Sums = __m128i;  // int16: the sum of each 32 values of x, at most 32 * 127 = 4064 in magnitude
  using Head = KScalesAvx2;
  static constexpr bool kHasMin = true;

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    return _mm_packs_epi32(sum_each_epi32(sum), sum_each_epi32(sum + 4));
  }

  template <class Block>
  static Head head(const Block& block) {
    return unpack_k_scales_avx2(&block);
  }
  static __m256i start(const Head&, const Sums&) { return _mm256_setzero_si256(); }
  static __m128i dot_min(const Head& head, const Sums& sums) { return _mm_madd_epi16(head.mins(), sums); }
};

// Q3_K and Q6_K: sixteen groups of 16, each with a scale of either sign; a weight is its code less 2^kLogOffset.
template <int kLogOffset>
struct KTypeWithOffset : KType {
  using Sums = __m256i;  // int16: the sum of each 16 values of x; even groups in the low half, odd ones in the high
  using Head = __m256i;  // the 16 scales as int16, in the same order
  static constexpr bool kHasMin = false;

  static Sums sum_x(const XBlock& x) {
    __m256i sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = sum_fours(load_bytes(x.q + 32 * j));
    // The adds stay within 128-bit halves, which are the groups of 16.
    const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
    const __m256i second = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[4], sum[5]), _mm256_hadd_epi32(sum[6], sum[7]));
    return _mm256_packs_epi32(first, second);
  }

  // The part of code - offset that has no code: -offset * sum scale * (sum of x); a lane stays below 2^25.
  static __m256i start(const Head& scales, const Sums& sums) {
    const __m256i weighted = _mm256_madd_epi16(scales, sums);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(weighted, kLogOffset));
  }
};

}  // namespace
}  // namespace terrace::kernels
