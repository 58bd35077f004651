#include "kernels/cpu/q8_0/q8_0.h"

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/q8_0/block.h"

namespace terrace::kernels {
namespace {

int weight(const BlockQ8_0& w, int i) { return w.q[i]; }

}  // namespace

void dot_rows_q8_0_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ8_0, BlockA8x32, block_value_with_one_scale<BlockQ8_0, BlockA8x32, weight>>(
      w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q8_0(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ8_0, weight_value_with_one_scale<BlockQ8_0, weight>>(row, cols, out);
}

}  // namespace terrace::kernels
