#include "kernels/cpu/q4_0/q4_0.h"

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/q4_0/block.h"

namespace terrace::kernels {
namespace {

int weight(const BlockQ4_0& w, int i) {
  const int nibble = i < 16 ? w.nibbles[i] & 15 : w.nibbles[i - 16] >> 4;
  return nibble - 8;
}

}  // namespace

void dot_rows_q4_0_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ4_0, BlockA8x32, block_value_with_one_scale<BlockQ4_0, BlockA8x32, weight>>(
      w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q4_0(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ4_0, weight_value_with_one_scale<BlockQ4_0, weight>>(row, cols, out);
}

}  // namespace terrace::kernels
