#include <immintrin.h>

#include "kernels/cpu/avx512_floats.h"
#include "kernels/cpu/f32/f32.h"

namespace terrace::kernels {
namespace {

struct F32 {
  using Element = float;
  static __m512 load(const float* w) { return _mm512_loadu_ps(w); }
  static __m512 load_first(const float* w, __mmask16 which) { return _mm512_maskz_loadu_ps(which, w); }
};

}  // namespace

void dot_rows_f32_avx512_vnni(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                              const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                              std::size_t y_stride) {
  dot_float_rows_avx512<F32>({w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride});
}

}  // namespace terrace::kernels
