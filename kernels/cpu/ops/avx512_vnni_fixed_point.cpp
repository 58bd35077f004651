// AVX-512 DQ converts between double and int64 itself, to nearest even.
#include "kernels/cpu/ops/avx512_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx512_vnni {
namespace {

constexpr std::size_t kDoubles = 8;

inline __mmask8 first_doubles(std::size_t n) {
  return n < kDoubles ? static_cast<__mmask8>((1u << n) - 1) : static_cast<__mmask8>(0xff);
}

// 2^exponent from bits.
inline float power_of_two(int exponent) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((exponent + 127) << 23)));
}
inline __m512d power_of_two8(int exponent) {
  return _mm512_castsi512_pd(_mm512_set1_epi64(static_cast<long long>(exponent + 1023) << 52));
}

}  // namespace

bool add_fixed(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums) {
  const __m256 factor = _mm256_set1_ps(weight), limit = _mm256_set1_ps(power_of_two(kFixedBits - shift));
  const __m512d unit = power_of_two8(shift);
  __mmask8 bad = 0;
  for (std::size_t i = 0; i < n; i += kDoubles) {
    const __mmask8 lanes = first_doubles(n - i);
    const __m256 t = _mm256_mul_ps(factor, _mm256_maskz_loadu_ps(lanes, out + i));
    const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), t);
    bad |= _mm256_mask_cmp_ps_mask(lanes, size, limit, _CMP_NLT_UQ);  // also true for a NaN
    const __m512i integers = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(t), unit));
    const __m512i sum = _mm512_add_epi64(_mm512_maskz_loadu_epi64(lanes, sums + i), integers);
    _mm512_mask_storeu_epi64(sums + i, lanes, sum);
  }
  return bad == 0;
}

bool from_fixed(const std::int64_t* sums, std::size_t n, int shift, float* x) {
  const __m512i limit = _mm512_set1_epi64(1LL << kFixedBits);
  const __m512d unit = power_of_two8(-shift);
  __mmask8 bad = 0;
  for (std::size_t i = 0; i < n; i += kDoubles) {
    const __mmask8 lanes = first_doubles(n - i);
    const __m512i y = _mm512_maskz_loadu_epi64(lanes, sums + i);
    bad |= _mm512_cmpge_epu64_mask(_mm512_abs_epi64(y), limit);  // unsigned: |-2^63| is 2^63
    _mm256_mask_storeu_ps(x + i, lanes, _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(y), unit)));
  }
  return bad == 0;
}

}  // namespace terrace::kernels::avx512_vnni
