// The scalar references, and with them every variant, against vectors that share no code with the product.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/registry/registry.h"
#include "tests/test_data.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::kernels {
namespace weight_vectors_test {

using test::Bytes;

std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Every variant for which `applies` holds: what has no vectors is not a test, rather than a skipped one.
std::vector<WeightKernels> variants(bool (*applies)(TensorType)) {
  std::vector<WeightKernels> chosen;
  for (const WeightKernels& k : all_weight_kernels())
    if (applies(k.type)) chosen.push_back(k);
  return chosen;
}

std::string file_stem(TensorType type) { return lower(info(type).name); }
bool has_contract_dots(TensorType type) {
  return std::filesystem::exists(test::data_dir() / "contract" / (file_stem(type) + ".w"));
}
bool has_blocks(TensorType type) {
  return std::filesystem::exists(test::data_dir() / "quant" / (file_stem(type) + ".blocks"));
}
bool is_half(TensorType type) { return type == TensorType::kF16 || type == TensorType::kBF16; }

class WeightVectors : public testing::TestWithParam<WeightKernels> {
 protected:
  const WeightKernels& kernels() const { return GetParam(); }
  std::string type_name() const { return file_stem(kernels().type); }
  void SetUp() override {
    if (!detect_cpu_features().has(kernels().isa)) GTEST_SKIP() << "this CPU lacks " << name(kernels().isa);
  }
};

// The four activation rows of the contract's vectors, in `activation`, assembled from the vectors' own q and d.
std::vector<Bytes> contract_activations(ActivationClass activation) {
  constexpr std::size_t kRows = 4, kCols = 1024;
  const auto dir = test::data_dir() / "contract";
  std::vector<Bytes> rows(kRows, Bytes(row_bytes(activation, kCols)));
  if (activation == ActivationClass::kF32) {
    const auto x = test::read_array<float>(dir / "x.f32");
    for (std::size_t j = 0; j < kRows; ++j) std::memcpy(rows[j].data(), &x[j * kCols], kCols * 4);
    return rows;
  }
  const std::string stem = std::string("x.") + name(activation);
  const auto q = test::read_array<std::int8_t>(dir / (stem + ".q.i8"));
  const auto d = test::read_array<float>(dir / (stem + ".d.f32"));
  const std::size_t n = block_values(activation);
  for (std::size_t c = 0; c < kRows * kCols / n; ++c) {
    std::byte* block = rows[c * n / kCols].data() + c % (kCols / n) * (n + 4);
    std::memcpy(block, &d[c], 4);
    std::memcpy(block + 4, &q[c * n], n);
  }
  return rows;
}

class ContractDots : public WeightVectors {};
TEST_P(ContractDots, AreEqual) {
  constexpr std::size_t kWeightRows = 8, kX = 4, kCols = 1024;
  const auto dir = test::data_dir() / "contract";
  const auto w = test::read_array<std::byte>(dir / (type_name() + ".w"));
  const auto expected = test::read_array<float>(dir / (type_name() + ".y.f32"));
  const auto x = contract_activations(kernels().activation);
  ASSERT_EQ(w.size(), kWeightRows * row_bytes(kernels().type, kCols));
  ASSERT_EQ(expected.size(), kX * kWeightRows);

  std::vector<float> y(kX * kWeightRows);
  kernels().dot_rows(w.data(), w.size() / kWeightRows, kWeightRows, test::pointers(x).data(), kX, kCols, y.data(),
                     kWeightRows);
  EXPECT_EQ(y, expected);
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * 4);
  return bits;
}

class DequantisedBlocks : public WeightVectors {};
TEST_P(DequantisedBlocks, HaveTheReferenceBits) {
  const auto dir = test::data_dir() / "quant";
  const auto blocks = test::read_array<std::byte>(dir / (type_name() + ".blocks"));
  const auto expected = test::read_array<float>(dir / (type_name() + ".f32"));
  std::vector<float> values(expected.size());
  ASSERT_EQ(blocks.size(), row_bytes(kernels().type, values.size()));
  kernels().dequantize_row(blocks.data(), values.size(), values.data());
  EXPECT_EQ(bits_of(values), bits_of(expected));
}

class HalfRows : public WeightVectors {};
TEST_P(HalfRows, Widened_GiveTheF32Dots) {
  constexpr std::size_t kRows = 5, kX = 3;
  test::Rng rng(31);
  for (const std::size_t cols : {1u, 15u, 16u, 33u, 256u}) {
    const Bytes w = test::random_weights(kernels().type, kRows, cols, rng);
    std::vector<float> widened(kRows * cols);
    kernels().dequantize_row(w.data(), widened.size(), widened.data());
    const auto x = test::random_activations(ActivationClass::kF32, kX, cols, rng);
    std::vector<float> y(kX * kRows), expected(kX * kRows);
    kernels().dot_rows(w.data(), w.size() / kRows, kRows, test::pointers(x).data(), kX, cols, y.data(), kRows);
    const auto f32 = select_weight_kernels(TensorType::kF32, {}, Isa::kScalar);
    f32->dot_rows(reinterpret_cast<const std::byte*>(widened.data()), cols * 4, kRows, test::pointers(x).data(), kX,
                  cols, expected.data(), kRows);
    EXPECT_EQ(y, expected) << cols << " columns";
  }
}

// The value of 16 bits by the formats' definitions, in double.
double value_of(TensorType type, unsigned bits) {
  const int fraction_bits = type == TensorType::kF16 ? 10 : 7;
  const int top = type == TensorType::kF16 ? 31 : 255;
  const int exponent = static_cast<int>(bits & 0x7fff) >> fraction_bits;
  const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
  const int bias = top / 2;
  double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  if (exponent == top) value = fraction == 0 ? INFINITY : NAN;
  return bits & 0x8000 ? -value : value;
}

// Each of the 65536 values alone in a row, times one.
TEST_P(HalfRows, EveryValue_IsWidenedExactly) {
  constexpr std::size_t kCols = 16, kValues = 65536;
  Bytes w(kValues * kCols * 2);
  for (std::size_t v = 0; v < kValues; ++v) test::put_u16(w, v * kCols * 2, static_cast<std::uint16_t>(v));
  const float one[kCols] = {1};
  const std::byte* x = reinterpret_cast<const std::byte*>(one);
  std::vector<float> y(kValues), widened(kValues * kCols);
  kernels().dot_rows(w.data(), kCols * 2, kValues, &x, 1, kCols, y.data(), kValues);
  kernels().dequantize_row(w.data(), widened.size(), widened.data());
  for (unsigned v = 0; v < kValues; ++v) {
    const double expected = value_of(kernels().type, v);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[v]) && std::isnan(widened[v * kCols])) << v;
    } else {
      EXPECT_EQ(y[v], expected) << v;
      EXPECT_EQ(widened[v * kCols], expected) << v;
      EXPECT_EQ(std::signbit(widened[v * kCols]), v >= 0x8000) << v;
    }
  }
}

std::string kernel_name(const testing::TestParamInfo<WeightKernels>& param) { return param.param.kernel_name; }
INSTANTIATE_TEST_SUITE_P(All, ContractDots, testing::ValuesIn(variants(has_contract_dots)), kernel_name);
INSTANTIATE_TEST_SUITE_P(All, DequantisedBlocks, testing::ValuesIn(variants(has_blocks)), kernel_name);
INSTANTIATE_TEST_SUITE_P(All, HalfRows, testing::ValuesIn(variants(is_half)), kernel_name);

// Byte k of a block is (73 k + 41) & 255, then d = 0.5 and dmin = 0.25 (facts about the format, recomputed from its
// definition): y[0], y[1], y[17], y[n/2 + 3], y[n - 1], the sum and the sum of magnitudes.
struct PatternBlock {
  TensorType type;
  float y0, y1, y17, middle, last, sum, sum_of_magnitudes;
};
TEST(WeightFormats, PatternBlock_GivesThePublishedValues) {
  const PatternBlock kExpected[] = {
      {TensorType::kQ8_0, -34.5f, 2, -54, 19, -55, -24, 1009},
      {TensorType::kQ4_0, 1.5f, -2, -4, 0.5f, -4, -16.5f, 65.5f},
      {TensorType::kQ3_K, -3.5f, 7, -2, 16, -12, 117, 3754},
      {TensorType::kQ4_K, 46.25f, 0.75f, 0.75f, 35.75f, -5.75f, 26676, 27233},
      {TensorType::kQ5_K, 150.25f, 0.75f, 0.75f, 203.75f, -5.75f, 55036, 55470.5f},
      {TensorType::kQ6_K, 80.5f, -23, 50, -686, 144, -7422, 130016},
  };
  for (const PatternBlock& e : kExpected) {
    SCOPED_TRACE(std::string(info(e.type).name));
    Bytes block(info(e.type).block_bytes);
    for (std::size_t k = 0; k < block.size(); ++k) block[k] = static_cast<std::byte>((73 * k + 41) & 255);
    const auto offsets = test::scale_offsets(e.type);
    for (std::size_t i = 0; i < offsets.size(); ++i) test::put_u16(block, offsets[i], i == 0 ? 0x3800 : 0x3400);
    const std::size_t n = info(e.type).block_values;
    std::vector<float> y(n);
    select_weight_kernels(e.type, {}, Isa::kScalar)->dequantize_row(block.data(), n, y.data());
    const float sum = std::accumulate(y.begin(), y.end(), 0.0f);
    const float sum_of_magnitudes =
        std::accumulate(y.begin(), y.end(), 0.0f, [](float s, float v) { return s + std::fabs(v); });
    EXPECT_THAT((std::vector<float>{y[0], y[1], y[17], y[n / 2 + 3], y[n - 1], sum, sum_of_magnitudes}),
                testing::ElementsAre(e.y0, e.y1, e.y17, e.middle, e.last, e.sum, e.sum_of_magnitudes));
  }
}

}  // namespace weight_vectors_test
}  // namespace terrace::kernels
