// The loops that the references of the block types share (docs/numerics.md 3.1): a type's reference.cpp states what
// one block gives, here stands the order in which blocks are added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/float_bits.h"

namespace terrace::kernels {

// DotRows of a block type. `value(w, x)` is v_c of one weight block and the activation block that meets it.
template <class Block, class XBlock, float (*value)(const Block&, const XBlock&)>
static void dot_rows_in_blocks(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows,
                               const std::byte* const* x, std::size_t n_x, std::size_t cols, float* y,
                               std::size_t y_stride) {
  static_assert(Block::kValues == sizeof(XBlock::q), "one activation block for each weight block");
  for (std::size_t j = 0; j < n_x; ++j) {
    const XBlock* x_blocks = reinterpret_cast<const XBlock*>(x[j]);
    for (std::size_t r = 0; r < n_weight_rows; ++r) {
      const Block* w_blocks = reinterpret_cast<const Block*>(w + r * w_row_bytes);
      float acc = 0.0f;
      for (std::size_t c = 0; c < cols / Block::kValues; ++c) acc = acc + value(w_blocks[c], x_blocks[c]);
      y[j * y_stride + r] = acc;
    }
  }
}

// DequantizeRow of a block type. `value(block, i)` is value i of a block.
template <class Block, float (*value)(const Block&, int)>
static void dequantize_row_in_blocks(const std::byte* row, std::size_t cols, float* out) {
  const Block* blocks = reinterpret_cast<const Block*>(row);
  for (std::size_t i = 0; i < cols; ++i)
    out[i] = value(blocks[i / Block::kValues], static_cast<int>(i % Block::kValues));
}

// ---- types with one scale a block and nothing below it: weight i is d * weight(w, i) --------------------------------

template <class Block, class XBlock, int (*weight)(const Block&, int)>
static float block_value_with_one_scale(const Block& w, const XBlock& x) {
  std::int32_t sum = 0;
  for (int i = 0; i < static_cast<int>(Block::kValues); ++i) sum += weight(w, i) * x.q[i];
  return (f16_to_f32(w.d) * x.d) * static_cast<float>(sum);
}

template <class Block, int (*weight)(const Block&, int)>
static float weight_value_with_one_scale(const Block& w, int i) {
  return f16_to_f32(w.d) * static_cast<float>(weight(w, i));
}

}  // namespace terrace::kernels
