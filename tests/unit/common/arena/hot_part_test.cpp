#include "common/arena/hot_part.h"

#include <gtest/gtest.h>

namespace terrace::arena {
namespace {

using Chosen = std::vector<std::uint8_t>;

TEST(HotPart, FirstOfEachLayerComesBeforeTheSecondOfAny) {
  const HotCandidate share[] = {{0, 10}, {0, 10}, {0, 10}, {1, 10}, {1, 10}, {3, 10}};
  EXPECT_EQ(choose_hot_part(share, 0), (Chosen{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(choose_hot_part(share, 29), (Chosen{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(choose_hot_part(share, 30), (Chosen{1, 0, 0, 1, 0, 1}));
  EXPECT_EQ(choose_hot_part(share, 50), (Chosen{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(choose_hot_part(share, 1000), (Chosen{1, 1, 1, 1, 1, 1}));
}

// Whoever counts on it may say: less than the largest is unused.
TEST(HotPart, EndsAtTheFirstThatDoesNotFit) {
  const HotCandidate share[] = {{0, 10}, {0, 30}, {1, 20}, {1, 5}};
  EXPECT_EQ(choose_hot_part(share, 59), (Chosen{1, 0, 1, 0}));
  EXPECT_EQ(choose_hot_part(share, 60), (Chosen{1, 1, 1, 0}));
  EXPECT_EQ(choose_hot_part(share, 65), (Chosen{1, 1, 1, 1}));
}

TEST(HotPart, WhatCannotLieThere_IsPassedOver) {
  const HotCandidate share[] = {{0, 0}, {0, 0}, {1, 10}, {1, 10}};
  EXPECT_EQ(choose_hot_part(share, 1000), (Chosen{0, 0, 1, 1}));
  EXPECT_TRUE(choose_hot_part({}, 1000).empty());
}

}  // namespace
}  // namespace terrace::arena
