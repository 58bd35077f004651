#include "coordinator/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace terrace::text {
namespace stop_matcher_test {

StopMatcher matcher_of(std::vector<std::string> stops) { return StopMatcher::make(std::move(stops)).value(); }

// All output of a stream cut into `pieces`, and whether it was stopped.
std::pair<std::string, bool> run(StopMatcher matcher, const std::vector<std::string>& pieces) {
  std::string shown;
  for (const std::string& piece : pieces) {
    const auto out = matcher.push(piece);
    shown += out.text;
    if (out.stopped) return {shown, true};
  }
  shown += matcher.flush();
  return {shown, false};
}

TEST(StopMatcher, BeginningOfAStop_IsHeldBackUntilItIsNone) {
  StopMatcher matcher = matcher_of({"\n\nUser:"});
  EXPECT_EQ(matcher.push("Hi.\n").text, "Hi.");
  EXPECT_EQ(matcher.push("\nUs").text, "");
  EXPECT_EQ(matcher.push("ually").text, "\n\nUsually");
  EXPECT_EQ(matcher.push(" \n").text, " ");
  EXPECT_EQ(matcher.flush(), "\n");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, StopAcrossPieces_CutsBeforeIt) {
  EXPECT_EQ(run(matcher_of({"STOP"}), {"one S", "T", "OP two"}), std::pair(std::string("one "), true));
  EXPECT_EQ(run(matcher_of({"aab"}), {"a", "a", "a", "b"}), std::pair(std::string("a"), true));
}

TEST(StopMatcher, SeveralStops_TheFirstToEndCounts) {
  EXPECT_EQ(run(matcher_of({"abcd", "bc"}), {"xabcd"}), std::pair(std::string("xa"), true));
  EXPECT_EQ(run(matcher_of({"c", "abc"}), {"xabc"}), std::pair(std::string("x"), true));
}

TEST(StopMatcher, NoStops_EverythingPasses) {
  EXPECT_EQ(run(matcher_of({}), {"a", "b"}), std::pair(std::string("ab"), false));
}

TEST(StopMatcher, EmptyOrNotUtf8_IsRefused) {
  for (const char* stop : {"", "\xFF"}) {
    const auto made = StopMatcher::make({"fine", stop});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(StopMatcher, AnyCutIntoPieces_GivesTheSameText) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const auto word = [&random](std::size_t shortest, std::size_t longest) {
    std::string out(shortest + random() % (longest - shortest + 1), ' ');
    for (char& c : out) c = static_cast<char>('a' + random() % 2);
    return out;
  };
  for (int round = 0; round < 500; ++round) {
    const StopMatcher matcher = matcher_of({word(3, 8), word(3, 8)});
    const std::string text = word(0, 40);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, random() % 4));
      at += pieces.back().size();
    }
    ASSERT_EQ(run(matcher, pieces), run(matcher, {text})) << "seed " << kSeed << ", round " << round;
  }
}

}  // namespace stop_matcher_test
}  // namespace terrace::text
