#include "coordinator/text/text_output.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/text/small_vocabulary.h"

namespace terrace::text {
namespace text_output_test {

class TextOutputTest : public testing::Test {
 protected:
  TextOutput output(std::vector<std::string> stops) const {
    return TextOutput::make(tokenizer_, {}, std::move(stops)).value();
  }
  const Tokenizer tokenizer_ = Tokenizer::make(test::small_vocabulary()).value();
};

TEST_F(TextOutputTest, StopStringInsideACharacterOfSeveralTokens_IsFoundOnceItIsWhole) {
  TextOutput out = output({"€"});
  EXPECT_EQ(out.push('x').text, "x");
  EXPECT_EQ(out.push(0xE2).text, "");
  EXPECT_EQ(out.push(0x82).text, "");
  const StopMatcher::Output last = out.push(0xAC);
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.stop, "€");
}

TEST_F(TextOutputTest, End_GivesWhatBothHeldBack) {
  TextOutput out = output({"abc"});
  EXPECT_EQ(out.push('a').text, "");
  EXPECT_EQ(out.push('b').text, "");
  EXPECT_EQ(out.push(0xE2).text, "");
  EXPECT_EQ(out.finish().text, "ab\uFFFD");
}

TEST_F(TextOutputTest, EndThatCompletesAStopString_Stops) {
  TextOutput out = output({"b\uFFFD"});
  EXPECT_EQ(out.push('a').text, "a");
  EXPECT_EQ(out.push('b').text, "");
  EXPECT_EQ(out.push(0xE2).text, "");
  const StopMatcher::Output last = out.finish();
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.stop, "b\uFFFD");
}

TEST_F(TextOutputTest, BadStopString_IsRefused) { EXPECT_FALSE(TextOutput::make(tokenizer_, {}, {""}).ok()); }

}  // namespace text_output_test
}  // namespace terrace::text
