// One block of Q3_K as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

// Each half of the block holds 128 values; value 32 * k + i of half h (k < 4) has
//   bits 0..1   in low[h][i], at bit 2 * k
//   bit 2       in high[i], at bit 4 * h + k
// Scale j (6 bits, 32 more than it stands for), of 16 values each, has
//   bits 0..3   in scales[j % 8], the low nibble for j < 8, else the high one
//   bits 4..5   in scales[8 + j % 4], at bit 2 * (j / 4)
struct BlockQ3K {
  static constexpr std::size_t kValues = 256;
  std::uint8_t high[32];
  std::uint8_t low[2][32];
  std::uint8_t scales[12];
  std::uint16_t d;  // f16
};
static_assert(sizeof(BlockQ3K) == 110 && alignof(BlockQ3K) == 2);

}  // namespace terrace::kernels
