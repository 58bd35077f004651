// Small vector parts for the AVX-512 files. Everything here has internal linkage, so that no copy compiled for AVX-512
// can become the program's only one.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_lanes.h"
#include "kernels/cpu/ops/constants.h"

namespace terrace::kernels::avx512_vnni {
namespace {

constexpr std::size_t kWidth = 16;  // floats of a vector: the contract's 16 lanes

// The first `n` of sixteen lanes; all of them for n >= 16.
inline __mmask16 first_lanes(std::size_t n) {
  return n < kWidth ? static_cast<__mmask16>((1u << n) - 1) : static_cast<__mmask16>(0xffff);
}

// EXP of docs/numerics.md 4. max and min return their second operand when one is a NaN: a NaN stays one.
inline __m512 exp16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(kExpMin), x);
  x = _mm512_min_ps(_mm512_set1_ps(kExpMax), x);
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(kMinusLn2High), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(kMinusLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpCoefficients[6]);
#pragma GCC unroll 6
  for (int k = 5; k >= 0; --k) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpCoefficients[k]));
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
}

// What avx_attention.h computes with.
struct Vector16 {
  using Floats = __m512;
  static constexpr std::size_t kWidth = 16;
  static constexpr int kRegisters = 32;

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* x) { return _mm512_loadu_ps(x); }
  static Floats load_f16(const std::uint16_t* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static void store(float* x, Floats v) { _mm512_storeu_ps(x, v); }
  static Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats exp(Floats x) { return exp16(x); }
  static float largest(Floats x) { return _mm512_reduce_max_ps(x); }
  // Of n values, a multiple of 16, in 16 lanes.
  static float sum_in_lanes(const float* x, std::size_t n) {
    Floats lanes = zero();
    for (std::size_t i = 0; i < n; i += kWidth) lanes = _mm512_add_ps(lanes, load(x + i));
    return sum_lanes_avx512(lanes);
  }
};

}  // namespace
}  // namespace terrace::kernels::avx512_vnni
