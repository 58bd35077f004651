// What one block of a K-type gives (docs/numerics.md 3.1). A type's reference.cpp states its integers, here stands what
// is done with them.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/cpu/activations/block.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/k_scales.h"

namespace terrace::kernels {

// ---- Q4_K and Q5_K: eight sub-blocks of 32 with a scale and a min; they differ in their codes alone ----------------

// v_c. `code(w, i)` is the unsigned integer of value i.
template <class Block, int (*code)(const Block&, int)>
static float block_value_with_mins(const Block& w, const BlockA8x256& x) {
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

// DequantizeRow. The scales are unpacked once a block: every token's embedding row comes this way.
template <class Block, int (*code)(const Block&, int)>
static void dequantize_row_with_mins(const std::byte* row, std::size_t cols, float* out) {
  const Block* blocks = reinterpret_cast<const Block*>(row);
  for (std::size_t c = 0; c < cols / Block::kValues; ++c) {
    const Block& w = blocks[c];
    const KScales k = unpack_k_scales(w.scales);
    const float d = f16_to_f32(w.d), dmin = f16_to_f32(w.dmin);
    for (int i = 0; i < 256; ++i) {
      const float scale = d * static_cast<float>(k.scale[i / 32]);
      const float min = dmin * static_cast<float>(k.min[i / 32]);
      out[c * Block::kValues + static_cast<std::size_t>(i)] = scale * static_cast<float>(code(w, i)) - min;
    }
  }
}

// ---- Q3_K and Q6_K: sixteen groups of 16 with a scale ---------------------------------------------------------------

// v_c. `scale(w, j)` is the integer of group j, `weight(w, i)` that of value i.
template <class Block, int (*scale)(const Block&, int), int (*weight)(const Block&, int)>
static float block_value_with_groups(const Block& w, const BlockA8x256& x) {
  std::int32_t sum = 0;
  for (int i = 0; i < 256; ++i) sum += scale(w, i / 16) * weight(w, i) * x.q[i];
  return (f16_to_f32(w.d) * x.d) * static_cast<float>(sum);
}

// Value i of the block, dequantised.
template <class Block, int (*scale)(const Block&, int), int (*weight)(const Block&, int)>
static float weight_value_with_groups(const Block& w, int i) {
  const float group_scale = f16_to_f32(w.d) * static_cast<float>(scale(w, i / 16));
  return group_scale * static_cast<float>(weight(w, i));
}

}  // namespace terrace::kernels
