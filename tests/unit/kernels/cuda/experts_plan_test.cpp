#include "kernels/cuda/experts/plan.h"

#include <gtest/gtest.h>

#include "kernels/card/expert_card.h"

namespace terrace::kernels::cuda {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The experts of Qwen3-30B-A3B in q4_k_m.
const ExpertForm kForm30B{{TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K, 2048, 768},
                          ActivationClass::kA8x256,
                          ActivationClass::kA8x256,
                          ActivationClass::kA8x256};
const ExpertForm kTwoClasses{{TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ8_0, 512, 256},
                             ActivationClass::kA8x256,
                             ActivationClass::kA8x32,
                             ActivationClass::kA8x32};

WorkspaceBytes workspace(std::uint64_t budget) { return {card_workspace_bytes(budget), card_staging_bytes(budget)}; }

TEST(CardBudget, NineTenthsOfWhatIsFree_HalfWhereItIsTheHostsMemory) {
  constexpr std::uint64_t kFree = 120 * 1024 * kMiB;
  EXPECT_EQ(default_budget_bytes(kFree, false), 108 * 1024 * kMiB);
  EXPECT_EQ(default_budget_bytes(kFree, true), 60 * 1024 * kMiB);
  EXPECT_EQ(default_budget_bytes(0, false), 0u);
}

TEST(CardExpertsPlan, PiecesLieBehindEachOther_Aligned) {
  for (const ExpertForm& form : {kForm30B, kTwoClasses}) {
    const SliceLayout at = lay_out(form, {5, 40, 8});
    const std::uint64_t rising[] = {at.gate_rows, at.gate_groups, at.up_groups, at.down_groups, at.x_rows,
                                    at.slots,     at.weights,     at.in_bytes,  at.gate,        at.up,
                                    at.h,         at.out,         at.sums,      at.failed,      at.end};
    for (std::size_t i = 0; i + 1 < std::size(rising); ++i) EXPECT_LT(rising[i], rising[i + 1]) << i;
    for (const std::uint64_t offset : rising) EXPECT_EQ(offset % 256, 0u);
    EXPECT_GE(at.gate_groups - at.gate_rows, 5 * row_bytes(form.gate_class, form.shape.d_model));
    EXPECT_GE(at.sums - at.out, std::uint64_t{40} * form.shape.d_model * 4);
    EXPECT_GE(at.back_bytes(), std::uint64_t{5} * form.shape.d_model * 8 + 5);
  }
  EXPECT_EQ(lay_out(kForm30B, {5, 40, 8}).up_x, lay_out(kForm30B, {5, 40, 8}).gate_x);  // one class: rows once
  EXPECT_NE(lay_out(kTwoClasses, {5, 40, 8}).up_x, lay_out(kTwoClasses, {5, 40, 8}).gate_x);
}

TEST(CardExpertsPlan, AFullWorkspace_HoldsAPromptsBatch) {
  const auto limits = slice_limits(kForm30B, workspace(std::uint64_t{24} << 30), false);
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->rows, 512u);
  EXPECT_EQ(limits->pairs, 4096u);
}

TEST(CardExpertsPlan, SmallWorkspaces_HaveSmallerSlices_ThatFit) {
  std::uint32_t before = 513;
  for (const std::uint64_t budget : {1024 * kMiB, 256 * kMiB, 64 * kMiB, 16 * kMiB}) {
    const WorkspaceBytes bytes = workspace(budget);
    for (const bool to_slots : {false, true}) {
      const auto limits = slice_limits(kForm30B, bytes, to_slots);
      ASSERT_TRUE(limits.ok()) << limits.error().text();
      const SliceLayout at = lay_out(kForm30B, {limits->rows, limits->pairs, limits->pairs_of_row});
      EXPECT_LE(at.end, bytes.card);
      EXPECT_LE(at.in_bytes, bytes.pinned / 2);
      EXPECT_LE(at.back_bytes(), bytes.pinned / 2);
      if (to_slots) {
        EXPECT_LE(std::uint64_t{limits->pairs} * 2048 * 4, bytes.pinned / 2);
      } else {
        EXPECT_LE(limits->rows, before);
        before = limits->rows;
      }
    }
  }
}

TEST(CardExpertsPlan, NoRoomForOneRow_IsRefusedWithBothSizes) {
  const auto limits = slice_limits(kForm30B, {4096, 4096}, false);
  ASSERT_FALSE(limits.ok());
  EXPECT_EQ(limits.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(limits.error().text().find("4096"), std::string::npos) << limits.error().text();
}

}  // namespace
}  // namespace terrace::kernels::cuda
