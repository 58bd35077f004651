// The card's EXP and SILU, compiled for this machine, against the scalar reference by ==.
#include "kernels/cuda/exact_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/cpu/ops/scalar.h"

namespace terrace::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_equal(float x) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_exact(x)), std::bit_cast<std::uint32_t>(scalar::exp(x))) << x;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(silu_exact(x)), std::bit_cast<std::uint32_t>(scalar::silu(x))) << x;
  const float sigmoid = 1.0f / (1.0f + scalar::exp(-x));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sigmoid_exact(x)), std::bit_cast<std::uint32_t>(sigmoid)) << x;
}

TEST(CudaExactMath, OrdinaryAndExtremeValues_EqualTheScalarReference) {
  for (std::int32_t i = -(1 << 19); i < 1 << 19; i += 37) expect_equal(static_cast<float>(i) * 0x1p-12f);
  for (const float x : {0.0f, -0.0f, 87.0f, -87.0f, 88.0f, 88.5f, 1e30f, -1e30f, kInfinity, -kInfinity, 1e-40f})
    expect_equal(x);
}

TEST(CudaExactMath, NaN_StaysOne) { EXPECT_NE(exp_exact(std::nanf("")), exp_exact(std::nanf(""))); }

TEST(CudaExactMath, Finiteness_IsReadFromTheExponent) {
  EXPECT_TRUE(is_finite(0.0f));
  EXPECT_TRUE(is_finite(std::numeric_limits<float>::max()));
  EXPECT_TRUE(is_finite(std::numeric_limits<float>::denorm_min()));
  EXPECT_FALSE(is_finite(kInfinity));
  EXPECT_FALSE(is_finite(-kInfinity));
  EXPECT_FALSE(is_finite(std::nanf("")));
}

}  // namespace
}  // namespace terrace::kernels::cuda
