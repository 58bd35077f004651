// The integers of the sum over experts (docs/numerics.md 5) in device code.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/constants.h"

namespace terrace::kernels::cuda {

// 2^exponent in double.
__device__ __forceinline__ double power_of_two(int exponent) {
  return __longlong_as_double(std::int64_t{exponent + 1023} << 52);
}

class ToFixed {
 public:
  __device__ __forceinline__ explicit ToFixed(int shift)
      : limit_(static_cast<float>(power_of_two(kFixedBits - shift))), unit_(static_cast<float>(power_of_two(shift))) {}
  // Finite, and small enough.
  __device__ __forceinline__ bool takes(float t) const { return fabsf(t) < limit_; }  // a NaN compares false
  // rint(double(t) * 2^shift): the product is exact in f32 too, and 32-bit conversions are four times as many a clock.
  __device__ __forceinline__ std::int64_t operator()(float t) const {
    const float scaled = t * unit_;
    return fabsf(scaled) < 0x1p31f ? std::int64_t{__float2int_rn(scaled)} : __float2ll_rn(scaled);
  }

 private:
  float limit_, unit_;
};

// Whether a row's total is in range.
__device__ __forceinline__ bool is_total(std::int64_t sum) {
  constexpr std::int64_t kLimit = std::int64_t{1} << kFixedBits;
  return sum > -kLimit && sum < kLimit;
}
__device__ __forceinline__ float from_fixed_value(std::int64_t sum, int shift) {
  return static_cast<float>(static_cast<double>(sum) * power_of_two(-shift));
}

}  // namespace terrace::kernels::cuda
