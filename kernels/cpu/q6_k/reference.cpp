#include "kernels/cpu/q6_k/q6_k.h"

#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/k_reference.h"
#include "kernels/cpu/q6_k/block.h"

namespace terrace::kernels {
namespace {

int scale(const BlockQ6K& w, int j) { return w.scale[j]; }

int weight(const BlockQ6K& w, int i) {
  const int half = i / 128;
  const int k = i % 128 / 32;
  const int low = w.low[half][k % 2][i % 32] >> 4 * (k / 2) & 15;
  const int high = w.high[half][i % 32] >> 2 * k & 3;
  return (low | high << 4) - 32;
}

}  // namespace

void dot_rows_q6_k_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ6K, BlockA8x256, block_value_with_groups<BlockQ6K, scale, weight>>(
      w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q6_k(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ6K, weight_value_with_groups<BlockQ6K, scale, weight>>(row, cols, out);
}

}  // namespace terrace::kernels
