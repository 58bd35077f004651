#include "kernels/cpu/q4_k/q4_k.h"

#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/k_reference.h"
#include "kernels/cpu/q4_k/block.h"

namespace terrace::kernels {
namespace {

int code(const BlockQ4K& w, int i) {
  const std::uint8_t byte = w.nibbles[i / 64][i % 32];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

}  // namespace

void dot_rows_q4_k_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ4K, BlockA8x256, block_value_with_mins<BlockQ4K, code>>(w, w_row_bytes, n_weight_rows, x,
                                                                                   n_x, cols, y, y_stride);
}

void dequantize_row_q4_k(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_with_mins<BlockQ4K, code>(row, cols, out);
}

}  // namespace terrace::kernels
