#include <immintrin.h>

#include "kernels/cpu/avx512_floats.h"
#include "kernels/cpu/bf16/bf16.h"

namespace terrace::kernels {
namespace {

struct BF16 {
  using Element = std::uint16_t;
  static __m512 widen(__m256i words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
  static __m512 load(const std::uint16_t* w) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))); }
  static __m512 load_first(const std::uint16_t* w, __mmask16 which) {
    return widen(_mm256_maskz_loadu_epi16(which, w));
  }
};

}  // namespace

void dot_rows_bf16_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  dot_float_rows_avx512<BF16>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
