#include <immintrin.h>

#include "kernels/cpu/activations/quantize_blocks.h"

namespace terrace::kernels {
namespace {

inline __m256 magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

inline float largest_lane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// On finite values the maximum is exact in any order.
template <int kValues>
inline float largest_magnitude(const float* x) {
  __m256 largest = _mm256_setzero_ps();
  for (int i = 0; i < kValues; i += 8) largest = _mm256_max_ps(largest, magnitude(_mm256_loadu_ps(x + i)));
  return largest_lane(largest);
}

// Eight values as int32: the conversion rounds to nearest even (MXCSR's default), after the one f32 product.
inline __m256i scaled(const float* x, __m256 inverse) {
  const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  return _mm256_min_epi32(_mm256_max_epi32(q, _mm256_set1_epi32(-127)), _mm256_set1_epi32(127));
}

inline void quantize_32(const float* x, __m256 inverse, std::int8_t* q) {
  const __m256i words_0 = _mm256_packs_epi32(scaled(x, inverse), scaled(x + 8, inverse));
  const __m256i words_1 = _mm256_packs_epi32(scaled(x + 16, inverse), scaled(x + 24, inverse));
  // The packs work within 128-bit halves and leave groups of four values in the order 0 2 4 6 1 3 5 7.
  const __m256i bytes = _mm256_packs_epi16(words_0, words_1);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, order));
}

template <class Block>
inline void quantize_blocks(const float* x, std::size_t n_blocks, Block* out) {
  constexpr int kValues = sizeof out->q;
  for (std::size_t c = 0; c < n_blocks; ++c, x += kValues, ++out) {
    const float amax = largest_magnitude<kValues>(x);
    if (amax < kSmallestAmax) {
      *out = Block{};
      continue;
    }
    out->d = amax / 127.0f;
    const __m256 inverse = _mm256_set1_ps(127.0f / amax);
    for (int i = 0; i < kValues; i += 32) quantize_32(x + i, inverse, out->q + i);
  }
}

}  // namespace

void quantize_blocks_avx2(const float* x, std::size_t n_blocks, BlockA8x32* out) { quantize_blocks(x, n_blocks, out); }
void quantize_blocks_avx2(const float* x, std::size_t n_blocks, BlockA8x256* out) { quantize_blocks(x, n_blocks, out); }

}  // namespace terrace::kernels
