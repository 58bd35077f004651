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
  EXPECT_EQ(shares({4096, 20}, 64), (Rows{16, 20}));
  EXPECT_EQ(shares({4096, 500}, 64), (Rows{16, 48}));
}

TEST(RowShares, OfYoungerOnes_TheFewestRowsLeftGoFirst) {
  EXPECT_EQ(shares({4096, 100, 30, 30}, 64), (Rows{16, 0, 30, 0}));
}

TEST(RowShares, EqualPrompts_GoByAge) { EXPECT_EQ(shares({50, 50, 50}, 64), (Rows{50, 0, 0})); }

TEST(RowShares, ChunkOfARow_IsTheOldests) { EXPECT_EQ(shares({50, 2}, 1), (Rows{1, 0})); }

TEST(RowShares, NoPrompt_IsNoWork) { EXPECT_EQ(shares({}, 64), Rows{}); }

TEST(RowShares, PromptsThatEndTogether_AreAllInTheStep) {
  EXPECT_EQ(shares({4096, 20, 12, 40}, 64), (Rows{16, 20, 12, 0}));
  EXPECT_EQ(shares({10, 20, 12}, 64), (Rows{10, 20, 12}));
}

TEST(RowShares, SumIsTheChunkWhereThereIsWork_UnlessAPromptEnds) {
  for (std::uint32_t chunk = 1; chunk < 80; ++chunk) {
    const Rows left = {7, 40, 3, 19};
    const Rows rows = shares(left, chunk);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_LE(rows[i], left[i]);
      sum += rows[i];
    }
    bool one_ends = false;
    for (std::size_t i = 0; i < left.size(); ++i) one_ends = one_ends || rows[i] == left[i];
    EXPECT_LE(sum, chunk);
    if (!one_ends) {
      EXPECT_EQ(sum, chunk);
    }
  }
}

}  // namespace
}  // namespace terrace::serve
