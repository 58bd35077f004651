#include "kernels/cpu/q4_k/q4_k.h"

#include <cmath>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/block_reference.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/k_scales.h"
#include "kernels/cpu/q4_k/block.h"

namespace terrace::kernels {
namespace {

int code(const BlockQ4K& w, int i) {
  const std::uint8_t byte = w.nibbles[i / 64][i % 32];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

float block_value(const BlockQ4K& w, const BlockA8x256& x) {
  const KScales k = unpack_k_scales(w.scales);
  std::int32_t sum = 0;
  std::int32_t min_sum = 0;
  for (int i = 0; i < 256; ++i) {
    sum += k.scale[i / 32] * code(w, i) * x.q[i];
    min_sum += k.min[i / 32] * x.q[i];
  }
  const float min_value = (f16_to_f32(w.dmin) * x.d) * static_cast<float>(min_sum);
  return std::fma(f16_to_f32(w.d) * x.d, static_cast<float>(sum), -min_value);
}

float weight_value(const BlockQ4K& w, int i) {
  const KScales k = unpack_k_scales(w.scales);
  const int j = i / 32;
  const float scale = f16_to_f32(w.d) * static_cast<float>(k.scale[j]);
  const float min = f16_to_f32(w.dmin) * static_cast<float>(k.min[j]);
  return scale * static_cast<float>(code(w, i)) - min;
}

}  // namespace

void dot_rows_q4_k_scalar(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                          const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                          std::size_t y_stride) {
  dot_rows_in_blocks<BlockQ4K, BlockA8x256, block_value>(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
}

void dequantize_row_q4_k(const std::byte* row, std::size_t cols, float* out) {
  dequantize_row_in_blocks<BlockQ4K, weight_value>(row, cols, out);
}

}  // namespace terrace::kernels
