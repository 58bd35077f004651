#include "kernels/cpu/q3_k/q3_k.h"

#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/k_reference.h"
#include "kernels/cpu/q3_k/block.h"

namespace terrace::kernels {
namespace {

int scale(const BlockQ3K& w, int j) {
  const int low = w.scales[j % 8] >> 4 * (j / 8) & 15;
  const int high = w.scales[8 + j % 4] >> 2 * (j / 4) & 3;
  return (low | high << 4) - 32;
}

int weight(const BlockQ3K& w, int i) {
  const int half = i / 128;
  const int k = i % 128 / 32;
  const int low = w.low[half][i % 32] >> 2 * k & 3;
  const int high = w.high[i % 32] >> (4 * half + k) & 1;
  return (low | high << 2) - 4;
}

}  // namespace

void dot_rows_q3_k_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ3K, BlockA8x256, block_value_with_groups<BlockQ3K, scale, weight>>(
      w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q3_k(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ3K, weight_value_with_groups<BlockQ3K, scale, weight>>(row, cols, out);
}

}  // namespace terrace::kernels
