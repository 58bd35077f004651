#include "common/base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace terrace {
namespace {

std::string encode(std::uint32_t c) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
  return out;
}

TEST(Utf8, EveryCodePointButSurrogates_IsACharacter) {
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    const std::string text = encode(c);
    const Utf8Step step = utf8_step(text);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(step.kind == Utf8Kind::kCharacter, !surrogate) << std::hex << c;
    if (!surrogate) {
      ASSERT_EQ(step.length, text.size());
      for (std::size_t cut = 1; cut < text.size(); ++cut)
        ASSERT_EQ(utf8_step(text.substr(0, cut)).kind, Utf8Kind::kCut) << std::hex << c;
    }
  }
}

TEST(Utf8, IllFormedBytes_AreCutIntoMaximalSubparts) {
  const std::string bad = "\xEF\xBF\xBD";
  // The examples of the Unicode Standard, tables 3-8 to 3-11.
  EXPECT_EQ(replace_bad_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            bad + bad + bad + bad + bad + bad + bad + bad + "A");
  EXPECT_EQ(replace_bad_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            bad + bad + bad + bad + bad + bad + bad + bad + "A");
  EXPECT_EQ(replace_bad_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            bad + bad + bad + bad + bad + "A" + bad + bad + "B");
  EXPECT_EQ(replace_bad_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad + bad + bad + bad + "A");
}

}  // namespace
}  // namespace terrace
