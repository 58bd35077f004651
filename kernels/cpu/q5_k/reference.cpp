#include "kernels/cpu/q5_k/q5_k.h"

#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/k_reference.h"
#include "kernels/cpu/q5_k/block.h"

namespace terrace::kernels {
namespace {

int code(const BlockQ5K& w, int i) {
  const std::uint8_t byte = w.nibbles[i / 64][i % 32];
  const int low = i % 64 < 32 ? byte & 15 : byte >> 4;
  const int high = w.high[i % 32] >> i / 32 & 1;
  return low | high << 4;
}

}  // namespace

void dot_rows_q5_k_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ5K, BlockA8x256, block_value_with_mins<BlockQ5K, code>>(w, w_row_bytes, n_weight_rows, x,
                                                                                   n_x, cols, y, y_stride);
}

void dequantize_row_q5_k(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_with_mins<BlockQ5K, code>(row, cols, out);
}

}  // namespace terrace::kernels
