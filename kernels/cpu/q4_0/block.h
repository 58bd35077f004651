// One block of Q4_0 as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

struct BlockQ4_0 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;           // f16
  std::uint8_t nibbles[16];  // byte i: value i low, value i + 16 high
};
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);

}  // namespace terrace::kernels
