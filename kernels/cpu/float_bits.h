// The 16-bit float formats widened to f32, exactly; a NaN becomes quiet, as the hardware's conversion makes it.
// Plain functions that ISA files may include: `static inline`, so that a copy compiled for a wide ISA stays in its
// object file. (An `inline` function is one symbol for the whole program, and the linker may keep the AVX2 copy.)
#pragma once

#include <cstdint>
#include <cstring>

namespace terrace::kernels {

static inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u) | mantissa << 13);
  return float_of_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

static inline float bf16_to_f32(std::uint16_t half) { return float_of_bits(static_cast<std::uint32_t>(half) << 16); }

}  // namespace terrace::kernels
