#include <gtest/gtest.h>

#include <bit>

#include "kernels/cuda/expert_gemv/gemm_plan.h"
#include "kernels/cuda/expert_gemv/plan.h"

namespace terrace::kernels::cuda {
namespace {

constexpr GemvCard kH200{132, 227 * 1024};
constexpr GemvCard kSmall{28, 99 * 1024};  // as of sm_86

GemvShape shape(TensorType type, std::uint32_t weight_rows, std::uint32_t cols, std::uint32_t groups,
                std::uint32_t max_rows) {
  const bool is_float = info(type).block_values == 1;
  const bool small = info(type).block_values == 32;
  const ActivationClass activation = is_float ? ActivationClass::kF32
                                     : small  ? ActivationClass::kA8x32
                                              : ActivationClass::kA8x256;
  return {type, activation, is_float ? 0u : 16u, weight_rows, cols, groups, max_rows};
}

// The parts lie behind each other, aligned, and end within what the card has.
void expect_sound(const GemvPlan& plan, const GemvShape& s, const GemvCard& card) {
  EXPECT_TRUE(std::has_single_bit(plan.tile_rows));
  EXPECT_EQ(1u << plan.log_tile_rows, plan.tile_rows);
  EXPECT_GE(std::uint64_t{plan.tiles} * plan.tile_rows, s.weight_rows);
  EXPECT_LT(std::uint64_t{plan.tiles - 1} * plan.tile_rows, s.weight_rows);
  EXPECT_EQ(plan.w_row_bytes, row_bytes(s.type, s.cols));
  EXPECT_GE(plan.w_stride, plan.w_row_bytes + 14 + 3);  // a row begins anywhere within 16 bytes
  EXPECT_EQ(plan.w_stride % 32, 16u);
  EXPECT_EQ(plan.x_offset, plan.w_stride * plan.tile_rows);
  EXPECT_EQ(plan.x_offset % 16, 0u);
  EXPECT_EQ(plan.x_stride % 32, 16u);
  EXPECT_GE(plan.x_stride, plan.x_row_bytes);
  EXPECT_LE(plan.x_buffers, s.max_rows > plan.pass_rows ? 2u : 1u);
  EXPECT_GE(plan.x_buffers, 1u);
  EXPECT_EQ(plan.v_offset, plan.x_offset + plan.x_stride * plan.pass_rows * plan.x_buffers);
  EXPECT_TRUE(plan.threads % 32 == 0 && plan.threads >= 32 && plan.threads <= 256) << plan.threads;
  EXPECT_TRUE(plan.method != GemvMethod::kMma || plan.tile_rows % 16 == 0);
  EXPECT_LE(plan.v_offset, plan.barrier_offset);
  EXPECT_EQ(plan.barrier_offset % 16, 0u);
  EXPECT_EQ(plan.barrier_offset + 16, plan.shared_bytes);
  EXPECT_LE(plan.shared_bytes, card.shared_bytes_per_block);
}

constexpr TensorType kTypes[] = {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ3_K,
                                 TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K,
                                 TensorType::kF32,  TensorType::kF16,  TensorType::kBF16};

TEST(CudaGemvPlan, ShapesOfModels_GiveSoundPlansOnBothCards) {
  for (const GemvCard& card : {kH200, kSmall})
    for (const TensorType type : kTypes)
      for (const std::uint32_t cols : {256u, 768u, 2048u, 2816u, 4096u, 7168u, 12288u})
        for (const std::uint32_t max_rows : {1u, 2u, 3u, 8u, 9u, 512u}) {
          const GemvShape s = shape(type, 1000, cols, 8, max_rows);
          const auto plan = plan_gemv(s, card);
          ASSERT_TRUE(plan.ok()) << info(type).name << " " << cols << ": " << plan.error().text();
          expect_sound(*plan, s, card);
        }
}

TEST(CudaGemvPlan, LongFloatRows_RunWithFewerRowsAPass) {
  for (const std::uint32_t cols : {2048u, 12288u, 20736u}) {
    const GemvShape s = shape(TensorType::kF32, 5, cols, 1, 5);
    const auto plan = plan_gemv(s, kH200);
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    expect_sound(*plan, s, kH200);
  }
}

TEST(CudaGemvPlan, ALongRow_StillRunsWithFewerRows) {
  const GemvShape s = shape(TensorType::kQ6_K, 3, 256 * 161, 1, 8);
  const auto plan = plan_gemv(s, kH200);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  expect_sound(*plan, s, kH200);
}

TEST(CudaGemvPlan, ARowLongerThanSharedMemory_IsRefusedWithBothSizes) {
  const auto plan = plan_gemv(shape(TensorType::kF32, 3, 65536, 1, 1), kSmall);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(plan.error().text().find("65536 F32 columns"), std::string::npos) << plan.error().text();
  EXPECT_NE(plan.error().text().find("101376"), std::string::npos) << plan.error().text();
}

TEST(CudaGemvPlan, ImpossibleShapes_AreRefused) {
  for (const GemvShape& s : {shape(TensorType::kQ4_K, 8, 300, 1, 1), shape(TensorType::kQ4_K, 0, 256, 1, 1),
                             shape(TensorType::kQ4_K, 8, 256, 0, 1), shape(TensorType::kQ4_K, 8, 256, 1, 0)}) {
    const auto plan = plan_gemv(s, kH200);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
  }
}

// The 30B model's experts: full tiles of 32 rows, three blocks to a multiprocessor's 228 KiB.
TEST(CudaGemvPlan, ExpertsOfTheLargeModel_KeepThreeBlocksToAMultiprocessor) {
  for (const std::uint32_t rows : {1u, 8u}) {
    const auto plan = plan_gemv(shape(TensorType::kQ4_K, 768, 2048, 128, rows), kH200);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->tile_rows, 32u);
    EXPECT_EQ(plan->method, rows == 1 ? GemvMethod::kBlocks : GemvMethod::kMma);
    EXPECT_LE(3 * (plan->shared_bytes + 1024), 228u * 1024);
  }
}

// Many rows go to the kernels for many on every card, cut so that all rows are covered and a stage fits.
TEST(CudaGemmPlan, ManyRowsOfKAndFloatTypes_AreCoveredOnBothCards) {
  for (const GemvCard& card : {kH200, kSmall})
    for (const TensorType type : kTypes)
      for (const std::uint32_t groups : {1u, 256u})
        for (const std::uint32_t rows : {kGemmFromRows, 129u, 512u, 4096u}) {
          const GemvShape s = shape(type, 1000, 2048, groups, rows);
          const GemmPlan plan = plan_gemm(s, card, kGemmFromRows);
          if (s.activation == ActivationClass::kA8x32) {
            EXPECT_EQ(plan.columns, 0u) << info(type).name;
            continue;
          }
          ASSERT_GT(plan.columns, 0u) << info(type).name;
          const std::uint32_t tile_rows = s.activation == ActivationClass::kF32 ? kFloatGemmRows : kGemmTileRows;
          EXPECT_GE(plan.tiles * tile_rows, s.weight_rows);
          EXPECT_LE(plan.shared_bytes, card.shared_bytes_per_block) << info(type).name;
          EXPECT_GE(plan.slices, 1u);
          EXPECT_TRUE(groups > 1 || plan.slices * plan.columns >= rows);
        }
}

TEST(CudaGemmPlan, FewRows_AreWorkForAGemv) {
  const GemvShape s = shape(TensorType::kQ4_K, 768, 2048, 128, kGemmFromRows - 1);
  EXPECT_EQ(plan_gemm(s, kH200, kGemmFromRows).columns, 0u);
  EXPECT_GT(plan_gemm(s, kH200, 1).columns, 0u);
}

// The parts of a stage begin where the copies and the tensor cores want them, and neighbours lie in other banks.
TEST(CudaGemmPlan, PartsOfAStage_AreAligned) {
  for (const TensorType type : kTypes) {
    const std::uint32_t block_bytes = info(type).block_bytes;
    EXPECT_EQ(gemm_w_stride(block_bytes) % 32, 16u);
    EXPECT_GE(gemm_w_stride(block_bytes), block_bytes % 16 == 0 ? block_bytes : block_bytes + 14);
    for (const std::uint32_t columns : {64u, 128u})
      for (const std::uint32_t at : {gemm_x_offset(block_bytes), gemm_sums_offset(block_bytes, columns),
                                     gemm_d_offset(block_bytes, columns), gemm_stage_bytes(block_bytes, columns)})
        EXPECT_EQ(at % 16, 0u);
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
