// One block of Q6_K as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

// Each half of the block holds 128 values; value 32 * k + i of half h (k < 4) has
//   bits 0..3   in low[h][k % 2][i],  the low nibble for k < 2, else the high one
//   bits 4..5   in high[h][i], at bit 2 * k
struct BlockQ6K {
  static constexpr std::size_t kValues = 256;
  std::uint8_t low[2][2][32];
  std::uint8_t high[2][32];
  std::int8_t scale[16];  // of 16 values each
  std::uint16_t d;        // f16
};
static_assert(sizeof(BlockQ6K) == 210 && alignof(BlockQ6K) == 2);

}  // namespace terrace::kernels
