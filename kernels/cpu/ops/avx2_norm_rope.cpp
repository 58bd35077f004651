#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {
namespace {

// Squares are not negative, so a lane is never -0 and fma with the zeros of a masked load leaves it as it is.
float sum_of_squares(const float* x, std::size_t n) {
  __m256 low = _mm256_setzero_ps();
  __m256 high = _mm256_setzero_ps();
  std::size_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    const __m256 x0 = _mm256_loadu_ps(x + i);
    const __m256 x1 = _mm256_loadu_ps(x + i + kWidth);
    low = _mm256_fmadd_ps(x0, x0, low);
    high = _mm256_fmadd_ps(x1, x1, high);
  }
  if (i < n) {
    const __m256 x0 = _mm256_maskload_ps(x + i, first_lanes(n - i));
    low = _mm256_fmadd_ps(x0, x0, low);
  }
  if (i + kWidth < n) {
    const __m256 x1 = _mm256_maskload_ps(x + i + kWidth, first_lanes(n - i - kWidth));
    high = _mm256_fmadd_ps(x1, x1, high);
  }
  return total_of_lanes(low, high);
}

// Four pairs (x0, x1) lie side by side in each of two vectors.
void rope_adjacent(float* x, const float* cosines, const float* sines, std::size_t n_pairs) {
  const __m256i interleaved = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  std::size_t p = 0;
  for (; p + 4 <= n_pairs; p += 4) {
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosines + p)), interleaved);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sines + p)), interleaved);
    const __m256 both = _mm256_loadu_ps(x + 2 * p);
    const __m256 swapped = _mm256_permute_ps(both, 0xb1);
    // Even lanes x0 c - x1 s, odd lanes x1 c + x0 s.
    _mm256_storeu_ps(x + 2 * p, _mm256_addsub_ps(_mm256_mul_ps(both, c), _mm256_mul_ps(swapped, s)));
  }
  for (; p < n_pairs; ++p) {
    const float x0 = x[2 * p];
    const float x1 = x[2 * p + 1];
    x[2 * p] = x0 * cosines[p] - x1 * sines[p];
    x[2 * p + 1] = x0 * sines[p] + x1 * cosines[p];
  }
}

void rope_neox(float* x, const float* cosines, const float* sines, std::size_t n_pairs) {
  std::size_t p = 0;
  for (; p + kWidth <= n_pairs; p += kWidth) {
    const __m256 c = _mm256_loadu_ps(cosines + p);
    const __m256 s = _mm256_loadu_ps(sines + p);
    const __m256 x0 = _mm256_loadu_ps(x + p);
    const __m256 x1 = _mm256_loadu_ps(x + p + n_pairs);
    _mm256_storeu_ps(x + p, _mm256_sub_ps(_mm256_mul_ps(x0, c), _mm256_mul_ps(x1, s)));
    _mm256_storeu_ps(x + p + n_pairs, _mm256_add_ps(_mm256_mul_ps(x0, s), _mm256_mul_ps(x1, c)));
  }
  for (; p < n_pairs; ++p) {
    const float x0 = x[p];
    const float x1 = x[p + n_pairs];
    x[p] = x0 * cosines[p] - x1 * sines[p];
    x[p + n_pairs] = x0 * sines[p] + x1 * cosines[p];
  }
}

}  // namespace

void rms_norm(const float* x, const float* w, std::size_t n, float eps, float* y) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float r = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
  const __m256 factor = _mm256_set1_ps(r);
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor), _mm256_loadu_ps(w + i)));
  for (; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void rope(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing) {
  if (pairing == RopePairing::kNeox) {
    rope_neox(x, cosines, sines, n_rot / 2);
  } else {
    rope_adjacent(x, cosines, sines, n_rot / 2);
  }
}

}  // namespace terrace::kernels::avx2
