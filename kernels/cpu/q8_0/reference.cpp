#include "kernels/cpu/q8_0/q8_0.h"

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/q8_0/block.h"

namespace terrace::kernels {
namespace {

float block_value(const BlockQ8_0& w, const BlockA8x32& x) {
  std::int32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += w.q[i] * x.q[i];
  return (f16_to_f32(w.d) * x.d) * static_cast<float>(sum);
}

float weight_value(const BlockQ8_0& w, int i) { return f16_to_f32(w.d) * static_cast<float>(w.q[i]); }

}  // namespace

void dot_rows_q8_0_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ8_0, BlockA8x32, block_value>(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q8_0(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ8_0, weight_value>(row, cols, out);
}

}  // namespace terrace::kernels
