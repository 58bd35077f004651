// EXP of docs/numerics.md 4 where its argument is at most zero, as a softmax's are, without branches and conversions:
// the same bits as exp_exact().
#pragma once

#include "kernels/cuda/exact_math.h"

namespace terrace::kernels::cuda {

// x <= 0, or NaN, which stays one.
TERRACE_DEVICE float exp_at_most_zero(float x) {
  constexpr float kToInteger = 0x1.8p23f;  // adding it leaves the nearest integer in the lowest bits
#ifdef __CUDA_ARCH__
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(kExpMin));
#else
  x = x < kExpMin ? kExpMin : x;
#endif
  const float shifted = x * kLog2E + kToInteger, n = shifted - kToInteger;
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return exp_of_remainder(x, n) * bits_to_float((bits << 23) + 0x3f800000u);
}

}  // namespace terrace::kernels::cuda
