// One block of Q8_0 as it lies in a model file. Plain struct: ISA files include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

struct BlockQ8_0 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;  // f16
  std::int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);

}  // namespace terrace::kernels
