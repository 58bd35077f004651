#include "kernels/cpu/bf16/bf16.h"

#include <cstdint>

#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/float_reference.h"

namespace terrace::kernels {

void dot_rows_bf16_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_lanes<std::uint16_t, bf16_to_f32>(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_bf16(const std::byte* row, std::size_t cols, float* out) {
  widen_row<std::uint16_t, bf16_to_f32>(row, cols, out);
}

}  // namespace terrace::kernels
