#include "kernels/cpu/ops/avx512_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx512_vnni {
namespace {

float sum_of_squares(const float* x, std::size_t n) {
  __m512 lanes = _mm512_setzero_ps();
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 present = first_lanes(n - i);
    const __m512 values = _mm512_maskz_loadu_ps(present, x + i);
    lanes = _mm512_mask3_fmadd_ps(values, values, lanes, present);  // a lane without a term is left alone
  }
  return sum_lanes_avx512(lanes);
}

}  // namespace

void rms_norm(const float* x, const float* w, std::size_t n, float eps, float* y) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const __m512 r = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 present = first_lanes(n - i);
    const __m512 normed = _mm512_mul_ps(_mm512_maskz_loadu_ps(present, x + i), r);
    _mm512_mask_storeu_ps(y + i, present, _mm512_mul_ps(normed, _mm512_maskz_loadu_ps(present, w + i)));
  }
}

}  // namespace terrace::kernels::avx512_vnni
