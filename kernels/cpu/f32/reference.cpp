#include "kernels/cpu/f32/f32.h"
#include "kernels/cpu/float_reference.h"

namespace terrace::kernels {
namespace {

float same(float w) { return w; }

}  // namespace

void dot_rows_f32_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                         const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  dot_rows_in_lanes<float, same>(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_f32(const std::byte* row, std::size_t cols, float* out) { widen_row<float, same>(row, cols, out); }

}  // namespace terrace::kernels
