// Quantised activation rows: the contract's vectors, then every ISA against the scalar reference.
#include "kernels/cpu/activations/activations.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cstring>
#include <string>

#include "kernels/cpu/activations/rows.h"
#include "kernels/cpu/isa.h"
#include "tests/test_data.h"
#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::kernels {
namespace activations_test {

using test::Bytes;

struct Variant {
  Isa isa;
  QuantizeRowFn quantize_row;
};
const Variant kVariants[] = {
    {Isa::kScalar, quantize_row_scalar},
#if defined(__x86_64__)
    {Isa::kAvx2, quantize_row_avx2},
    {Isa::kAvx512Vnni, quantize_row_avx512_vnni},
#endif
};

class Quantize : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!detect_cpu_features().has(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << name(GetParam().isa);
  }
  // By bytes, so that d = -0 would differ from d = 0.
  void expect_equals_reference(ActivationClass activation, const std::vector<float>& x, const std::string& what) {
    Bytes expected(row_bytes(activation, x.size()), std::byte{0xee});
    Bytes got(expected.size(), std::byte{0xdd});
    quantize_row_scalar(activation, x.data(), x.size(), expected.data());
    GetParam().quantize_row(activation, x.data(), x.size(), got.data());
    EXPECT_TRUE(got == expected) << what << ", " << terrace::name(activation);
  }
};

TEST_P(Quantize, ContractVectors_AreEqual) {
  const auto dir = test::data_dir() / "contract";
  const auto x = test::read_array<float>(dir / "x.f32");
  for (const ActivationClass activation : {ActivationClass::kA8x32, ActivationClass::kA8x256}) {
    const std::string stem = std::string("x.") + terrace::name(activation);
    const auto q = test::read_array<std::int8_t>(dir / (stem + ".q.i8"));
    const auto d = test::read_array<float>(dir / (stem + ".d.f32"));
    Bytes row(row_bytes(activation, x.size()));
    GetParam().quantize_row(activation, x.data(), x.size(), row.data());
    const std::size_t n = block_values(activation);
    for (std::size_t c = 0; c < d.size(); ++c) {
      const std::byte* block = row.data() + c * (n + 4);
      float stored_d;
      std::memcpy(&stored_d, block, 4);
      EXPECT_EQ(stored_d, d[c]) << stem << " block " << c;
      EXPECT_EQ(std::memcmp(block + 4, &q[c * n], n), 0) << stem << " block " << c;
    }
  }
}

TEST_P(Quantize, RandomRows_EqualReference) {
  constexpr unsigned kSeed = 4711;
  test::Rng rng(kSeed);
  std::normal_distribution<float> bell;
  for (const float scale : {1.0f, 1e-3f, 1e4f, 1e-28f, 1e-31f, 1e-42f, 1e37f}) {
    std::vector<float> x(256 * 20);
    for (float& v : x) v = bell(rng) * scale;
    for (const ActivationClass activation : {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256})
      expect_equals_reference(activation, x, "scale " + std::to_string(scale) + ", seed " + std::to_string(kSeed));
  }
}

// A block whose amax is given and whose other values are multiples of it: ties, signs, zeros of either sign.
TEST_P(Quantize, EdgeBlocks_EqualReference) {
  const float kAmax[] = {0.0f, -0.0f,   FLT_TRUE_MIN,  FLT_MIN,  0x1p-100f, 0x1.fffffep-101f, 0x1p-99f,  127.0f, 254.0f,
                         1.0f, FLT_MAX, FLT_MAX / 127, -FLT_MAX, -127.0f,   0x1.000002p-100f, 0x1.3p-90f};
  for (const float amax : kAmax) {
    std::vector<float> x(256);
    for (int i = 0; i < 256; ++i) x[static_cast<std::size_t>(i)] = amax / 254.0f * static_cast<float>(i - 128);
    for (std::size_t i = 0; i < 256; i += 32) x[i] = amax;
    x[33] = -0.0f;
    for (const ActivationClass activation : {ActivationClass::kA8x32, ActivationClass::kA8x256})
      expect_equals_reference(activation, x, "amax " + std::to_string(amax));
  }
}

TEST(QuantizeReference, BelowTheSmallestAmax_IsAZeroBlock) {
  std::vector<float> x(32, 0x1.fffffep-101f);
  Bytes block(sizeof(BlockA8x32), std::byte{1});
  quantize_row_scalar(ActivationClass::kA8x32, x.data(), 32, block.data());
  EXPECT_EQ(block, Bytes(sizeof(BlockA8x32)));
  x[0] = 0x1p-100f;
  quantize_row_scalar(ActivationClass::kA8x32, x.data(), 32, block.data());
  EXPECT_EQ(block[4], std::byte{127});
}

INSTANTIATE_TEST_SUITE_P(All, Quantize, testing::ValuesIn(kVariants),
                         [](const auto& param) { return test::isa_identifier(param.param.isa); });

TEST(QuantizedRows, EachIsItsRowAlone_InEveryClass) {
  constexpr std::size_t kRows = 3, kCols = 512;
  std::vector<float> x(kRows * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 37) - 3;
  for (const ActivationClass activation : {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256}) {
    const std::size_t bytes = row_bytes(activation, kCols);
    const Bytes got = quantized_rows(quantize_row_scalar, activation, {x.data(), kRows, kCols});
    ASSERT_EQ(got.size(), kRows * bytes);
    for (std::size_t row = 0; row < kRows; ++row) {
      Bytes alone(bytes);
      quantize_row_scalar(activation, x.data() + row * kCols, kCols, alone.data());
      EXPECT_EQ(std::memcmp(got.data() + row * bytes, alone.data(), bytes), 0) << terrace::name(activation) << row;
    }
  }
}

}  // namespace activations_test
}  // namespace terrace::kernels
