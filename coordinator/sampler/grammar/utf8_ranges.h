// Ranges of code points as ranges of bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/sampler/grammar/expression.h"

namespace terrace::sampler::grammar {

struct ByteRange {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};

// Texts of n bytes, byte i in bytes[i].
struct ByteSequence {
  std::array<ByteRange, 4> bytes = {};
  std::size_t n = 0;
};

// Sequences whose texts are, each once, the UTF-8 forms of the range's code points; surrogates have none.
// Method: cut where the length of the form changes, then where a trailing byte's range is not whole (as Thompson and
// Cox describe for RE2).
std::vector<ByteSequence> utf8_sequences(CodePointRange range);

// Appends the UTF-8 form of a code point, at most kLastCodePoint.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace terrace::sampler::grammar
