#include <immintrin.h>

#include "kernels/cpu/activations/quantize_blocks.h"

namespace terrace::kernels {
namespace {

constexpr int kWidth = 16;

// On finite values the maximum is exact in any order.
template <int kValues>
inline float largest_magnitude(const float* x) {
  __m512 largest = _mm512_setzero_ps();
  for (int i = 0; i < kValues; i += kWidth) largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
  return _mm512_reduce_max_ps(largest);
}

// The conversion rounds to nearest even (MXCSR's default), after the one f32 product; narrowing saturates at 127.
inline void quantize_16(const float* x, __m512 inverse, std::int8_t* q) {
  const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
  const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_max_epi32(integers, _mm512_set1_epi32(-127)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
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
    const __m512 inverse = _mm512_set1_ps(127.0f / amax);
    for (int i = 0; i < kValues; i += kWidth) quantize_16(x + i, inverse, out->q + i);
  }
}

}  // namespace

void quantize_blocks_avx512_vnni(const float* x, std::size_t n_blocks, BlockA8x32* out) {
  quantize_blocks(x, n_blocks, out);
}
void quantize_blocks_avx512_vnni(const float* x, std::size_t n_blocks, BlockA8x256* out) {
  quantize_blocks(x, n_blocks, out);
}

}  // namespace terrace::kernels
