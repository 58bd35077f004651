// The lane tree of docs/numerics.md in AVX2, and sums over the lanes of several vectors at once. For avx2*.cpp only.
// Everything here has internal linkage: float_bits.h says why.
#pragma once

#include <immintrin.h>

namespace terrace::kernels {
namespace {

// Sixteen f32 lanes: lane i is low[i], or high[i - 8].
inline float sum_lanes_avx2(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Lane k of the result = the int32 sum over the lanes of the k-th argument.
inline __m128i sum_each_epi32(__m128i a, __m128i b, __m128i c, __m128i d) {
  return _mm_hadd_epi32(_mm_hadd_epi32(a, b), _mm_hadd_epi32(c, d));
}
inline __m128i sum_each_epi32(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

}  // namespace
}  // namespace terrace::kernels
