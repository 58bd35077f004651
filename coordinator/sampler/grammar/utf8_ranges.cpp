#include "coordinator/sampler/grammar/utf8_ranges.h"

#include <algorithm>

namespace terrace::sampler::grammar {
namespace {

constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};

void append_sequence(CodePointRange range, std::vector<ByteSequence>& out) {
  std::string low, high;
  append_utf8(low, range.first);
  append_utf8(high, range.last);
  ByteSequence sequence;
  sequence.n = low.size();
  for (std::size_t i = 0; i < low.size(); ++i)
    sequence.bytes[i] = {static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i])};
  out.push_back(sequence);
}

// Both ends have forms of one length.
void split_trailing_bytes(CodePointRange range, std::vector<ByteSequence>& out) {
  for (int shift = 6; shift <= 18; shift += 6) {
    const char32_t low_bits = (char32_t{1} << shift) - 1;
    if ((range.first & ~low_bits) == (range.last & ~low_bits)) continue;
    if ((range.first & low_bits) != 0) {
      split_trailing_bytes({range.first, range.first | low_bits}, out);
      return split_trailing_bytes({(range.first | low_bits) + 1, range.last}, out);
    }
    if ((range.last & low_bits) != low_bits) {
      split_trailing_bytes({range.first, (range.last & ~low_bits) - 1}, out);
      return split_trailing_bytes({range.last & ~low_bits, range.last}, out);
    }
  }
  append_sequence(range, out);
}

}  // namespace

std::vector<ByteSequence> utf8_sequences(CodePointRange range) {
  std::vector<ByteSequence> out;
  constexpr CodePointRange kParts[] = {{0, 0x7F},
                                       {0x80, 0x7FF},
                                       {0x800, kSurrogates.first - 1},
                                       {kSurrogates.last + 1, 0xFFFF},
                                       {0x10000, kLastCodePoint}};
  for (const CodePointRange& part : kParts) {
    const CodePointRange common{std::max(range.first, part.first), std::min(range.last, part.last)};
    if (common.first <= common.last) split_trailing_bytes(common, out);
  }
  return out;
}

void append_utf8(std::string& text, char32_t c) {
  const auto trailing = [&text, c](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | c >> 6);
    trailing(0);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | c >> 12);
    trailing(6);
    trailing(0);
  } else {
    text += static_cast<char>(0xF0 | c >> 18);
    trailing(12);
    trailing(6);
    trailing(0);
  }
}

}  // namespace terrace::sampler::grammar
