// Rows of x in the form in which a card's matrix kernels want them: the blocks of docs/numerics.md 2 taken apart, so
// that values lie at multiples of 16 bytes, with the sums of values that types with an offset or a minimum need. Made
// by kernels/cuda/activations; rows that travel keep the wire's form.
//
//   kA8x32, kA8x256   q     int8 [cols]
//                     d     f32 [cols / values of a block]
//                     sums  int16 [cols / 32], then int16 [cols / 16]: of q
//   kF32              the values
// Each part begins at a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/tensor_type.h"
#include "kernels/cuda/portable.h"

namespace terrace::kernels::cuda {

// Offsets in bytes.
struct CardRowLayout {
  std::uint32_t d = 0;
  std::uint32_t sums32 = 0;
  std::uint32_t sums16 = 0;
  std::uint32_t bytes = 0;  // of the row
};

constexpr std::uint32_t round_up_to_16(std::uint32_t n) { return (n + 15) / 16 * 16; }

// `cols` is a multiple of `block_values`, the values of a block of the class; 1: kF32.
constexpr CardRowLayout card_row_layout(std::uint32_t block_values, std::uint32_t cols) {
  if (block_values == 1) return {0, 0, 0, round_up_to_16(cols * 4)};
  CardRowLayout at;
  at.d = round_up_to_16(cols);
  at.sums32 = at.d + round_up_to_16(cols / block_values * 4);
  at.sums16 = at.sums32 + round_up_to_16(cols / 32 * 2);
  at.bytes = at.sums16 + round_up_to_16(cols / 16 * 2);
  return at;
}

// Quantised rows, `stride` bytes apart; `sums` is the offset of the sums that the weight type wants.
struct CardRows {
  const std::uint8_t* base;
  std::uint32_t stride;
  std::uint32_t d_offset;
  std::uint32_t sums_offset;

  TERRACE_DEVICE const std::uint8_t* q(int row, std::uint32_t value) const { return base + row * stride + value; }
  TERRACE_DEVICE float d(int row, std::uint32_t block) const {
    return load_aligned<float>(base + row * stride + d_offset + block * sizeof(float));
  }
  TERRACE_DEVICE const std::uint8_t* sums(int row, std::uint32_t index) const {
    return base + row * stride + sums_offset + index * sizeof(std::int16_t);
  }
};

}  // namespace terrace::kernels::cuda
