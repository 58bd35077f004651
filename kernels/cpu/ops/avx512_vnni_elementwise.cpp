#include "kernels/cpu/ops/avx512_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx512_vnni {
namespace {

inline __m512 silu16(__m512 g) {
  const __m512 negated = _mm512_xor_ps(g, _mm512_set1_ps(-0.0f));
  return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(negated)));
}

// y[i] = fn(x[i]).
template <class Fn>
inline void map(const float* x, std::size_t n, float* y, const Fn& fn) {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 lanes = first_lanes(n - i);
    _mm512_mask_storeu_ps(y + i, lanes, fn(_mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

}  // namespace

bool all_finite(const float* x, std::size_t n) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  __mmask16 bad = 0;
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __m512i bits = _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i);
    bad |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, exponent), exponent);
  }
  return bad == 0;
}

// The value first, then where it stands: two passes without a branch that depends on it.
std::size_t largest(const float* x, std::size_t n) {
  __m512 lanes = _mm512_set1_ps(x[0]);
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 valid = first_lanes(n - i);
    lanes = _mm512_mask_max_ps(lanes, valid, lanes, _mm512_maskz_loadu_ps(valid, x + i));
  }
  const __m512 wanted = _mm512_set1_ps(_mm512_reduce_max_ps(lanes));
  std::size_t i = 0;
  __mmask16 equal = 0;
  for (; i < n; i += kWidth) {
    const __mmask16 valid = first_lanes(n - i);
    equal = _mm512_mask_cmp_ps_mask(valid, _mm512_maskz_loadu_ps(valid, x + i), wanted, _CMP_EQ_OQ);
    if (equal != 0) break;
  }
  return i + static_cast<std::size_t>(__builtin_ctz(equal));
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, x + i), _mm512_maskz_loadu_ps(lanes, y + i));
    _mm512_mask_storeu_ps(x + i, lanes, sum);
  }
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* h) {
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 activated = silu16(_mm512_maskz_loadu_ps(lanes, gate + i));
    _mm512_mask_storeu_ps(h + i, lanes, _mm512_mul_ps(activated, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

void exp(const float* x, std::size_t n, float* y) {
  map(x, n, y, [](__m512 v) { return exp16(v); });
}

void silu(const float* x, std::size_t n, float* y) {
  map(x, n, y, [](__m512 v) { return silu16(v); });
}

}  // namespace terrace::kernels::avx512_vnni
