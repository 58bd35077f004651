#include "coordinator/sampler/grammar/utf8_ranges.h"

#include <gtest/gtest.h>

#include <random>

namespace terrace::sampler::grammar {
namespace {

bool takes(const std::vector<ByteSequence>& sequences, const std::string& text) {
  int n = 0;
  for (const ByteSequence& sequence : sequences) {
    bool matches = sequence.n == text.size();
    for (std::size_t i = 0; i < text.size() && matches; ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      matches = sequence.bytes[i].low <= byte && byte <= sequence.bytes[i].high;
    }
    n += matches ? 1 : 0;
  }
  EXPECT_LE(n, 1) << "a character stands for two sequences";
  return n > 0;
}

TEST(Utf8Ranges, RandomRanges_TakeJustTheirCharacters) {
  constexpr unsigned kSeed = 99;
  std::mt19937 random(kSeed);
  const char32_t edges[] = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
  for (int round = 0; round < 300; ++round) {
    const auto pick = [&] {
      const char32_t c = edges[random() % std::size(edges)] + static_cast<char32_t>(random() % 200) - 100;
      return random() % 3 == 0 ? random() % 0x110000 : c > kLastCodePoint ? kLastCodePoint : c;
    };
    CodePointRange range{static_cast<char32_t>(pick()), static_cast<char32_t>(pick())};
    if (range.first > range.last) std::swap(range.first, range.last);
    const auto sequences = utf8_sequences(range);
    const auto check = [&](char32_t c) {
      if (c > kLastCodePoint || (c >= 0xD800 && c <= 0xDFFF)) return;
      std::string text;
      append_utf8(text, c);
      ASSERT_EQ(takes(sequences, text), range.first <= c && c <= range.last)
          << "seed " << kSeed << ", U+" << std::hex << static_cast<std::uint32_t>(c);
    };
    for (int i = -2; i < 3; ++i) {
      check(range.first + static_cast<char32_t>(i));
      check(range.last + static_cast<char32_t>(i));
    }
    for (int i = 0; i < 50; ++i) check(static_cast<char32_t>(random() % 0x110000));
  }
}

TEST(Utf8Ranges, Surrogates_HaveNoForm) {
  EXPECT_TRUE(utf8_sequences({0xD800, 0xDFFF}).empty());
  EXPECT_EQ(utf8_sequences({0xD000, 0xE100}).size(),
            utf8_sequences({0xD000, 0xD7FF}).size() + utf8_sequences({0xE000, 0xE100}).size());
}

TEST(CodePointRanges, Complement_IsAllOthers) {
  const auto others = complement({{'b', 'd'}, {'c', 'f'}, {'g', 'g'}, {0, 0}});
  ASSERT_EQ(others.size(), 2u);
  EXPECT_EQ(others[0].first, 1u);
  EXPECT_EQ(others[0].last, static_cast<char32_t>('a'));
  EXPECT_EQ(others[1].first, static_cast<char32_t>('h'));
  EXPECT_EQ(others[1].last, kLastCodePoint);
  EXPECT_TRUE(complement({{0, kLastCodePoint}}).empty());
}

}  // namespace
}  // namespace terrace::sampler::grammar
