// One block of Q4_K as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

struct BlockQ4K {
  static constexpr std::size_t kValues = 256;
  std::uint16_t d;              // f16, times the scales
  std::uint16_t dmin;           // f16, times the mins
  std::uint8_t scales[12];      // unpack_k_scales()
  std::uint8_t nibbles[4][32];  // [k][i]: value i of sub-block 2k low, of sub-block 2k + 1 high
};
static_assert(sizeof(BlockQ4K) == 144 && alignof(BlockQ4K) == 2);

}  // namespace terrace::kernels
