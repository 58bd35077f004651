#include "coordinator/text/special_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace terrace::text {
namespace special_matcher_test {

TEST(SpecialMatcher, LeftmostWins_ThenTheLongest) {
  const SpecialMatcher matcher({{"ab", 1}, {"abc", 2}, {"bcd", 3}, {"abcdef", 4}});
  const auto match = matcher.find("xxabcdxx", 0);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 2u);
  EXPECT_EQ(match->length, 3u);  // not "bcd", which begins later, nor "abcdef", which is not whole
  EXPECT_EQ(match->id, 2);
  EXPECT_FALSE(matcher.find("xxabcdxx", 5).has_value());
  EXPECT_EQ(matcher.find("xxabcdxx", 3)->id, 3);
}

TEST(SpecialMatcher, SameTextTwice_TheLowerIdIsFound) {
  const SpecialMatcher matcher({{"<s>", 9}, {"<s>", 4}, {"<s>", 7}});
  EXPECT_EQ(matcher.find("<s>", 0)->id, 4);
}

TEST(SpecialMatcher, NoEntries_NothingIsFound) { EXPECT_FALSE(SpecialMatcher({}).find("abc", 0).has_value()); }

TEST(SpecialMatcher, RandomEntries_EqualASearchOfAll) {
  constexpr unsigned kSeed = 99;
  std::mt19937 random(kSeed);
  const auto word = [&random](std::size_t longest) {
    std::string out(1 + random() % longest, ' ');
    for (char& c : out) c = "a\xFF\x01"[random() % 3];
    return out;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<SpecialMatcher::Entry> entries;
    for (std::int32_t id = 0; id < 6; ++id) entries.emplace_back(word(5), id);
    const SpecialMatcher matcher(entries);
    const std::string text = word(30);
    std::optional<SpecialMatcher::Match> expected;
    for (std::size_t begin = 0; begin < text.size() && !expected; ++begin)
      for (const auto& [entry, id] : entries)
        if (text.compare(begin, entry.size(), entry) == 0 && (!expected || entry.size() > expected->length))
          expected = {begin, entry.size(), id};
    const auto found = matcher.find(text, 0);
    ASSERT_EQ(found.has_value(), expected.has_value()) << "seed " << kSeed << ", round " << round;
    if (found) {
      ASSERT_EQ(found->begin, expected->begin);
      ASSERT_EQ(found->id, expected->id);
    }
  }
}

}  // namespace special_matcher_test
}  // namespace terrace::text
