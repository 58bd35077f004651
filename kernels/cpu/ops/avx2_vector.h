// Small vector parts for the AVX2 files. Everything here has internal linkage, so that no copy compiled for AVX2 can
// become the program's only one.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/constants.h"

namespace terrace::kernels::avx2 {
namespace {

constexpr std::size_t kWidth = 8;  // floats of a vector

// The first `n` of eight lanes, for maskload and maskstore; all of them for n >= 8.
inline __m256i first_lanes(std::size_t n) {
  const int count = n < kWidth ? static_cast<int>(n) : static_cast<int>(kWidth);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// EXP of docs/numerics.md 4. max and min return their second operand when one is a NaN: a NaN stays one.
inline __m256 exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(kExpMin), x);
  x = _mm256_min_ps(_mm256_set1_ps(kExpMax), x);
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(kMinusLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(kMinusLn2Low), r);
  __m256 p = _mm256_set1_ps(kExpCoefficients[6]);
#pragma GCC unroll 6
  for (int k = 5; k >= 0; --k) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpCoefficients[k]));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

inline __m256 absolute(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

// The tree over 16 lanes: lane[i] + lane[i + 8], then + 4, + 2, + 1.
inline float total_of_lanes(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float largest_lane(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// What avx_attention.h computes with.
struct Vector8 {
  using Floats = __m256;
  static constexpr std::size_t kWidth = 8;
  static constexpr int kRegisters = 16;

  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* x) { return _mm256_loadu_ps(x); }
  static Floats load_f16(const std::uint16_t* x) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static void store(float* x, Floats v) { _mm256_storeu_ps(x, v); }
  static Floats fmadd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats exp(Floats x) { return exp8(x); }
  static float largest(Floats x) { return largest_lane(x); }
  // Of n values, a multiple of 16, in 16 lanes.
  static float sum_in_lanes(const float* x, std::size_t n) {
    Floats low = zero(), high = zero();
    for (std::size_t i = 0; i < n; i += 2 * kWidth) {
      low = _mm256_add_ps(low, load(x + i));
      high = _mm256_add_ps(high, load(x + i + kWidth));
    }
    return total_of_lanes(low, high);
  }
};

}  // namespace
}  // namespace terrace::kernels::avx2
