// One step of a UTF-8 decoder that accepts exactly the well-formed sequences of the Unicode Standard (table 3-7) and
// cuts ill-formed bytes into maximal subparts (its section 3.9, the practice of the WHATWG decoder).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace terrace {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  kCharacter,  // a whole well-formed character
  kBad,        // a maximal ill-formed subpart
  kCut,        // the text ends inside a character that further bytes could complete
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kBad;
  std::size_t length = 0;  // bytes, 1..4
};

// The step at the beginning of `text`, which must not be empty.
Utf8Step utf8_step(std::string_view text);

bool is_utf8(std::string_view text);

// `text` with U+FFFD for each maximal ill-formed subpart, a cut character at its end included.
std::string replace_bad_utf8(std::string_view text);

}  // namespace terrace
