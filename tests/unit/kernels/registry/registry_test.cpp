#include "kernels/registry/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::kernels {
namespace {

using testing::HasSubstr;

constexpr CpuFeatures kOldCpu{};
constexpr CpuFeatures kNewCpu{.avx2 = true};
constexpr CpuFeatures kNewestCpu{.avx2 = true, .avx512_vnni = true};

TEST(Registry, Table_IsGroupedByTypeWithTheReferenceFirst) {
  std::set<TensorType> seen;
  const WeightKernels* previous = nullptr;
  for (const WeightKernels& row : all_weight_kernels()) {
    const bool first_of_group = previous == nullptr || previous->type != row.type;
    if (first_of_group) {
      EXPECT_TRUE(seen.insert(row.type).second) << row.kernel_name << " is away from its group";
      EXPECT_EQ(row.isa, Isa::kScalar) << row.kernel_name;
    } else {
      EXPECT_GT(row.isa, previous->isa) << row.kernel_name;
      EXPECT_EQ(row.activation, previous->activation) << row.kernel_name;
    }
    EXPECT_NE(row.dot_rows, nullptr);
    EXPECT_NE(row.dequantize_row, nullptr);
    EXPECT_THAT(row.kernel_name, testing::EndsWith("_" + test::isa_identifier(row.isa)));
    previous = &row;
  }
}

TEST(Registry, ABlock_IsMetByOneActivationBlock) {
  for (const WeightKernels& row : all_weight_kernels())
    EXPECT_EQ(info(row.type).block_values, block_values(row.activation)) << row.kernel_name;
}

TEST(Registry, SupportedTypes_AreNamedInOrder) {
  EXPECT_EQ(supported_types(), "BF16, F16, F32, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0");
  EXPECT_TRUE(is_supported(TensorType::kQ4_K));
  EXPECT_FALSE(is_supported(TensorType::kIQ1_M));
}

TEST(Select, WithoutForce_TakesTheWidestThatTheCpuRuns) {
  EXPECT_EQ(select_weight_kernels(TensorType::kQ4_K, kOldCpu, {})->isa, Isa::kScalar);
#if defined(__x86_64__)
  EXPECT_STREQ(select_weight_kernels(TensorType::kQ4_K, kNewCpu, {})->kernel_name, "dot_rows_q4_k_avx2");
  EXPECT_STREQ(select_weight_kernels(TensorType::kQ4_K, kNewestCpu, {})->kernel_name, "dot_rows_q4_k_avx512_vnni");
#endif
}

// Forcing an ISA must not leave a type behind, nor take another ISA's kernel for it.
TEST(Select, EveryType_HasAKernelOfEveryIsaOfItsMachine) {
#if defined(__x86_64__)
  for (const auto& [text, isa] : kIsaNames)
    for (const WeightKernels& row : all_weight_kernels()) {
      const auto selected = select_weight_kernels(row.type, kNewestCpu, isa);
      ASSERT_TRUE(selected.ok()) << text << ": " << selected.error().text();
      EXPECT_EQ(selected->isa, isa) << selected->kernel_name;
    }
#endif
}

TEST(Select, Forced_TakesExactlyThat) {
  EXPECT_STREQ(select_weight_kernels(TensorType::kQ6_K, kNewCpu, Isa::kScalar)->kernel_name, "dot_rows_q6_k_scalar");
}

TEST(Select, ForcedBeyondTheCpu_NamesWhatItHas) {
  const auto selected = select_weight_kernels(TensorType::kQ4_K, kOldCpu, Isa::kAvx2);
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(selected.error().text(), HasSubstr("--isa avx2 needs instructions that this CPU lacks; it has scalar"));
  const auto wider = select_weight_kernels(TensorType::kQ4_K, kNewCpu, Isa::kAvx512Vnni);
  ASSERT_FALSE(wider.ok());
  EXPECT_THAT(wider.error().text(),
              HasSubstr("--isa avx512-vnni needs instructions that this CPU lacks; it has scalar avx2"));
}

TEST(Select, UnknownType_NamesTheSupportedOnes) {
  const auto selected = select_weight_kernels(TensorType::kIQ1_M, kNewCpu, {});
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(selected.error().text(), testing::AllOf(HasSubstr("IQ1_M"), HasSubstr(supported_types())));
}

TEST(DotRowsDequantized, EveryVariant_EqualsF32DotsOfTheDequantisedRows) {
  constexpr std::size_t kRows = 3, kX = 2, kCols = 512, kStride = 4;
  test::Rng rng(17);
  const auto rows = test::random_activations(ActivationClass::kF32, kX, kCols, rng);
  const auto x_bytes = test::pointers(rows);
  const float* x[kX] = {reinterpret_cast<const float*>(x_bytes[0]), reinterpret_cast<const float*>(x_bytes[1])};
  const auto f32 = select_weight_kernels(TensorType::kF32, kOldCpu, {});
  for (const WeightKernels& row : all_weight_kernels()) {
    if (!detect_cpu_features().has(row.isa)) continue;
    const auto w = test::random_weights(row.type, kRows, kCols, rng);
    const std::size_t row_size = w.size() / kRows;
    std::vector<float> values(kRows * kCols), scratch(kCols), y(kX * kStride), expected(kX * kStride);
    for (std::size_t r = 0; r < kRows; ++r) row.dequantize_row(&w[r * row_size], kCols, &values[r * kCols]);
    f32->dot_rows(reinterpret_cast<const std::byte*>(values.data()), kCols * 4, kRows, x_bytes.data(), kX, kCols,
                  expected.data(), kStride);
    dot_rows_dequantized(row, w.data(), row_size, kRows, x, kX, kCols, y.data(), kStride, scratch.data());
    EXPECT_EQ(y, expected) << row.kernel_name;
  }
}

}  // namespace
}  // namespace terrace::kernels
