#include <immintrin.h>

#include "kernels/cpu/avx2_floats.h"
#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/float_bits.h"

namespace terrace::kernels {
namespace {

struct BF16 {
  using Element = std::uint16_t;
  static __m256 load(const std::uint16_t* w) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  static float widen(std::uint16_t w) { return bf16_to_f32(w); }
};

}  // namespace

void dot_rows_bf16_avx2(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                        const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_float_rows<BF16>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
