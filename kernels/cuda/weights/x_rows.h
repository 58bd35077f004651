// Quantised rows of x as a GEMV stages them in shared memory, apart: values, scales, and sums of values where a type
// wants them. One form for both activation classes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/portable.h"

namespace terrace::kernels::cuda {

// Row j of the pass begins at base + j * stride:
//   q     int8 [cols], 16-byte aligned
//   d     f32 [cols / values of a block], at d_offset
//   sums  int16 [cols / kXSumValues of the weight type], at sums_offset, 16-byte aligned
struct XRows {
  const std::uint8_t* base;
  std::uint32_t stride;
  std::uint32_t d_offset;
  std::uint32_t sums_offset;

  TERRACE_DEVICE const std::uint8_t* q(int j, std::uint32_t value) const { return base + j * stride + value; }
  TERRACE_DEVICE float d(int j, std::uint32_t block) const {
    float value;
    std::memcpy(&value, base + j * stride + d_offset + block * sizeof value, sizeof value);
    return value;
  }
  TERRACE_DEVICE const std::uint8_t* sums(int j, std::uint32_t index) const {
    return base + j * stride + sums_offset + index * sizeof(std::int16_t);
  }
};

}  // namespace terrace::kernels::cuda
