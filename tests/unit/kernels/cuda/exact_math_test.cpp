// The card's EXP and SILU, compiled for this machine, against the scalar reference by ==.
#include "kernels/cuda/exact_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/ops/scalar.h"
#include "kernels/cuda/exp_at_most_zero.h"

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

TEST(CudaExactMath, NaN_StaysOne) {
  EXPECT_NE(exp_exact(std::nanf("")), exp_exact(std::nanf("")));
  EXPECT_NE(exp_at_most_zero(std::nanf("")), exp_at_most_zero(std::nanf("")));
}

TEST(CudaExactMath, ExpOfAtMostZero_EqualsTheScalarReference) {
  const auto expect_equal_exp = [](float x) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_at_most_zero(x)), std::bit_cast<std::uint32_t>(scalar::exp(x))) << x;
  };
  for (std::int32_t i = 0; i < 1 << 19; i += 11) expect_equal_exp(static_cast<float>(-i) * 0x1p-12f);
  for (const float x : {0.0f, -0.0f, -1e-40f, -87.0f, -87.5f, -1e30f, -kInfinity}) expect_equal_exp(x);
  // Where the product with log2(e) lies halfway between two integers, or next to it.
  for (int n = 0; n < 126; ++n) {
    float x = -(static_cast<float>(n) + 0.5f) / 0x1.715476p+0f;
    for (int i = 0; i < 3; ++i) x = std::nextafter(x, 0.0f);
    for (int i = 0; i < 7; ++i, x = std::nextafter(x, -kInfinity)) expect_equal_exp(x);
  }
}

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
