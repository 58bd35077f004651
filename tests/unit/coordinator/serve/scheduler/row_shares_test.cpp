#include "coordinator/serve/scheduler/row_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace terrace::serve {
namespace {

// Rows by the prompts' order from oldest to youngest.
std::vector<std::uint32_t> shares(const std::vector<std::uint32_t>& left, std::uint32_t chunk) {
  std::vector<PromptRows> prompts;
  for (const std::uint32_t n : left) prompts.push_back({n, 0, static_cast<std::uint32_t>(prompts.size())});
  share_rows(prompts, chunk);
  std::vector<std::uint32_t> rows(left.size());
  for (const PromptRows& prompt : prompts) rows[prompt.index] = prompt.rows;
  return rows;
}

using Rows = std::vector<std::uint32_t>;

TEST(RowShares, OnePrompt_GetsWhatItLacksUpToTheChunk) {
  EXPECT_EQ(shares({10}, 64), Rows{10});
  EXPECT_EQ(shares({100}, 64), Rows{64});
}

TEST(RowShares, ShortPromptBehindALongOne_IsComputedAtOnceAndTheOldestGetsAQuarter) {
  EXPECT_EQ(shares({4096, 20}, 64), (Rows{44, 20}));
  EXPECT_EQ(shares({4096, 500}, 64), (Rows{16, 48}));
}

TEST(RowShares, OfYoungerOnes_TheFewestRowsLeftGoFirst) {
  EXPECT_EQ(shares({4096, 100, 30, 30}, 64), (Rows{16, 0, 30, 18}));
}

TEST(RowShares, EqualPrompts_GoByAge) { EXPECT_EQ(shares({50, 50, 50}, 64), (Rows{50, 14, 0})); }

TEST(RowShares, ChunkOfARow_IsTheOldests) { EXPECT_EQ(shares({50, 2}, 1), (Rows{1, 0})); }

TEST(RowShares, NoPrompt_IsNoWork) { EXPECT_EQ(shares({}, 64), Rows{}); }

TEST(RowShares, SumIsTheChunkWhereThereIsWork) {
  for (std::uint32_t chunk = 1; chunk < 80; ++chunk) {
    const Rows left = {7, 40, 3, 19};
    const Rows rows = shares(left, chunk);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_LE(rows[i], left[i]);
      sum += rows[i];
    }
    EXPECT_EQ(sum, std::min(chunk, 69u));
  }
}

}  // namespace
}  // namespace terrace::serve
