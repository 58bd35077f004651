// One block of Q5_K as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

struct BlockQ5K {
  static constexpr std::size_t kValues = 256;
  std::uint16_t d;              // f16, times the scales
  std::uint16_t dmin;           // f16, times the mins
  std::uint8_t scales[12];      // unpack_k_scales()
  std::uint8_t high[32];        // [i]: bit 4 of value i of sub-block j, at bit j
  std::uint8_t nibbles[4][32];  // [k][i]: bits 0..3 of value i, of sub-block 2k low, of sub-block 2k + 1 high
};
static_assert(sizeof(BlockQ5K) == 176 && alignof(BlockQ5K) == 2);

}  // namespace terrace::kernels
