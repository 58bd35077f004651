// The contract's small parts for the scalar files: lanes, EXP, half precision. Never included by a file that is
// compiled for one ISA.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/ops/constants.h"

namespace terrace::kernels::scalar {

// "In 16 lanes": term i belongs to lane i mod 16; the lanes are then added as a tree.
class Lanes {
 public:
  float& of(std::size_t i) { return lane_[i % kLanes]; }

  float total() { return sum_lanes(lane_); }  // overwrites the lanes

 private:
  float lane_[kLanes] = {};
};

// EXP of docs/numerics.md 4. A NaN stays one.
inline float exp(float x) {
  if (x != x) return x;
  x = x < kExpMin ? kExpMin : x;
  x = x > kExpMax ? kExpMax : x;
  const float n = std::rint(x * kLog2E);
  float r = std::fma(n, kMinusLn2High, x);
  r = std::fma(n, kMinusLn2Low, r);
  float p = kExpCoefficients[6];
  for (int k = 5; k >= 0; --k) p = std::fma(p, r, kExpCoefficients[k]);
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127);
  return p * std::bit_cast<float>(exponent << 23);
}

inline float silu(float g) { return g / (1.0f + exp(-g)); }

// To nearest even, with subnormals; 65520 and above become infinity.
inline std::uint16_t f16_from_f32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000) {  // NaN: quiet, the payload's upper bits
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= std::bit_cast<std::uint32_t>(kF16Overflow)) {
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2^-14: in units of 2^-24, which is the unit of floats in [0.5, 1)
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  } else {  // the exponent's bias from 127 to 15, half of the lost unit (less one for even) added
    half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace terrace::kernels::scalar
