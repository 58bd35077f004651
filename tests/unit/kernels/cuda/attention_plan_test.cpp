// Which kernel computes attention, on cards with and without the shared memory that the one for prompts takes.
#include "kernels/cuda/attention/plan.h"

#include <gtest/gtest.h>

namespace terrace::kernels::cuda {
namespace {

CardInfo card(std::uint32_t multiprocessors, std::uint32_t shared_bytes) {
  CardInfo info;
  info.multiprocessors = multiprocessors;
  info.shared_bytes_per_block = shared_bytes;
  return info;
}
const CardInfo kH200 = card(132, 227 * 1024);
const CardInfo kConsumer = card(28, 99 * 1024);  // as of sm_86 and sm_120
const CardInfo kSmall = card(28, 64 * 1024);

AttentionArgs prompt(std::uint32_t n_rows, std::uint32_t head_dim, KvType type) {
  AttentionArgs args;
  args.cache.type = type;
  args.cache.n_kv_heads = 4;
  args.cache.head_dim = args.cache.value_dim = head_dim;
  args.n_heads = 32;
  args.q_stride = std::size_t{args.n_heads} * head_dim;
  args.n_rows = n_rows;
  args.max_keys = 4096;
  args.scratch_bytes = attention_scratch_bytes(n_rows, args.n_heads, head_dim, args.max_keys);
  return args;
}

TEST(AttentionPlan, NoCardGetsAKernelThatTakesMoreSharedMemoryThanItHas) {
  for (const CardInfo& info : {kH200, kConsumer, kSmall})
    for (const std::uint32_t head_dim : {64u, 128u})
      for (const KvType type : {KvType::kF16, KvType::kF32})
        for (const std::uint32_t n_rows : {1u, 31u, 32u, 512u, 4096u}) {
          const AttentionWay way = choose_way(info, prompt(n_rows, head_dim, type));
          EXPECT_TRUE(!way.prompt || sizeof(PromptShared) <= info.shared_bytes_per_block) << n_rows << " rows";
          EXPECT_EQ(way.rows, n_rows) << "all rows fit the scratch";
        }
}

TEST(AttentionPlan, ManyRows_GoToThePromptsKernelWhereTheCardHasItsMemory) {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    const AttentionArgs args = prompt(512, head_dim, KvType::kF16);
    EXPECT_TRUE(choose_way(kH200, args).prompt);
    EXPECT_TRUE(choose_way(kH200, args).whole);
    EXPECT_TRUE(choose_way(kConsumer, args).prompt);
    EXPECT_FALSE(choose_way(kSmall, args).prompt);
    EXPECT_FALSE(choose_way(kSmall, args).whole) << "the other kernel writes a partial a split";
  }
  // The limit itself is enough, a byte less is not.
  const AttentionArgs args = prompt(512, 128, KvType::kF16);
  EXPECT_TRUE(choose_way(card(28, sizeof(PromptShared)), args).prompt);
  EXPECT_FALSE(choose_way(card(28, sizeof(PromptShared) - 1), args).prompt);
}

TEST(AttentionPlan, FewRowsOtherHeadsAndLoneRows_KeepTheOtherKernel) {
  EXPECT_FALSE(choose_way(kH200, prompt(31, 128, KvType::kF16)).prompt);
  EXPECT_TRUE(choose_way(kH200, prompt(32, 128, KvType::kF16)).prompt);
  EXPECT_FALSE(choose_way(kH200, prompt(512, 96, KvType::kF16)).prompt);
  AttentionArgs alone = prompt(64, 128, KvType::kF16);
  alone.rows_are_alone = true;
  EXPECT_FALSE(choose_way(kH200, alone).prompt);
}

TEST(AttentionPlan, LittleScratch_SplitsTheRowsOfALaunch) {
  AttentionArgs args = prompt(512, 128, KvType::kF16);
  args.scratch_bytes = attention_scratch_bytes(64, 32, 128, args.max_keys);
  EXPECT_EQ(choose_way(kSmall, args).rows, 64u);
  EXPECT_EQ(choose_way(kH200, args).rows, 512u) << "one partial a row, not one a split";
}

}  // namespace
}  // namespace terrace::kernels::cuda
