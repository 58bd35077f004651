#include "coordinator/text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/utf8.h"
#include "tests/unit/coordinator/text/small_vocabulary.h"

namespace terrace::text {
namespace stream_decoder_test {

Tokenizer tokenizer() { return Tokenizer::make(test::small_vocabulary()).value(); }

TEST(StreamDecoder, CharacterOverThreeTokens_IsShownWhole) {
  const Tokenizer t = tokenizer();
  StreamDecoder stream(t, {});
  EXPECT_EQ(stream.push('x'), "x");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(0xAC), "€");
  EXPECT_EQ(stream.flush(), "");
}

TEST(StreamDecoder, CharacterNeverFinished_IsReplaced) {
  const Tokenizer t = tokenizer();
  StreamDecoder stream(t, {});
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('a'), "\uFFFDa");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(StreamDecoder, ControlTokens_ShownOrLeftOut) {
  const Tokenizer t = tokenizer();
  StreamDecoder shown(t, {.special = true}), hidden(t, {.special = false});
  EXPECT_EQ(shown.push(261), "<|endoftext|>");
  EXPECT_EQ(hidden.push(261), "");
  EXPECT_EQ(hidden.push(263), "");
  EXPECT_EQ(hidden.push(262), "<tool>");
}

TEST(StreamDecoder, RandomBytes_EachPieceIsUtf8AndTheSumIsTheReplacedText) {
  constexpr unsigned kSeed = 31;
  std::mt19937 random(kSeed);
  const Tokenizer t = tokenizer();
  StreamDecoder stream(t, {});
  const unsigned char likely[] = {0x41, 0x80, 0xBF, 0xC3, 0xE0, 0xE2, 0xED, 0xA0, 0xF0, 0x90, 0xF4, 0x8F, 0xFF};
  for (int round = 0; round < 2000; ++round) {
    std::string raw, shown;
    for (int i = 0; i < 8; ++i) {
      raw += static_cast<char>(likely[random() % std::size(likely)]);
      const std::string_view piece = stream.push(static_cast<unsigned char>(raw.back()));
      ASSERT_TRUE(is_utf8(piece));
      shown += piece;
    }
    shown += stream.flush();
    ASSERT_EQ(shown, replace_bad_utf8(raw)) << "seed " << kSeed << ", round " << round;
  }
}

}  // namespace stream_decoder_test
}  // namespace terrace::text
