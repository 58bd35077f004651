// EXP, SILU and rounding to f16 as the contract writes them (docs/numerics.md 4), for device code and for the host's
// test of it. Needs the flags of cmake/TerraceCuda.cmake: no contraction, IEEE division.
#pragma once

#include "kernels/cpu/ops/constants.h"
#include "kernels/cuda/portable.h"

namespace terrace::kernels::cuda {

namespace exact_math_detail {
// A host array cannot be read on the card, its elements can be copied into constants.
template <int k>
inline constexpr float kExpCoefficient = kExpCoefficients[k];
}  // namespace exact_math_detail

TERRACE_DEVICE float round_to_even(float x) {
#ifdef __CUDA_ARCH__
  return rintf(x);
#else
  return std::nearbyint(x);
#endif
}

// EXP of x = n * ln(2) + r without its power of two; n: x * log2(e), rounded to an integer.
TERRACE_DEVICE float exp_of_remainder(float x, float n) {
  using exact_math_detail::kExpCoefficient;
  float r = fused(n, kMinusLn2High, x);
  r = fused(n, kMinusLn2Low, r);
  float p = kExpCoefficient<6>;
  p = fused(p, r, kExpCoefficient<5>);
  p = fused(p, r, kExpCoefficient<4>);
  p = fused(p, r, kExpCoefficient<3>);
  p = fused(p, r, kExpCoefficient<2>);
  p = fused(p, r, kExpCoefficient<1>);
  return fused(p, r, kExpCoefficient<0>);
}

// A NaN stays one.
TERRACE_DEVICE float exp_exact(float x) {
  if (x != x) return x;
  x = x < kExpMin ? kExpMin : x;
  x = x > kExpMax ? kExpMax : x;
  const float n = round_to_even(x * kLog2E);
  return exp_of_remainder(x, n) * bits_to_float(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23);
}

TERRACE_DEVICE float sigmoid_exact(float x) { return 1.0f / (1.0f + exp_exact(-x)); }
TERRACE_DEVICE float silu_exact(float g) { return g / (1.0f + exp_exact(-g)); }

// Not every exponent bit is set: no infinity, no NaN.
TERRACE_DEVICE bool is_finite(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000u) != 0x7f800000u;
}

}  // namespace terrace::kernels::cuda
