#include "coordinator/text/jinja/string_literal.h"

#include <fmt/core.h>

#include <algorithm>

#include "coordinator/text/jinja/failure.h"
#include "coordinator/text/jinja/lexer.h"
#include "coordinator/text/jinja/unicode.h"

namespace terrace::text::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Up to `most` digits of base `base` from `at` on.
char32_t take_number(std::string_view text, std::size_t& at, int base, std::size_t most) {
  char32_t value = 0;
  for (std::size_t n = 0; n < most && at < text.size() && digit_value(text[at]) < base; ++n)
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(text[at++]));
  return value;
}

char32_t hexadecimal(std::string_view text, std::size_t& at, std::size_t digits, std::uint32_t line) {
  const std::size_t begin = at;
  const char32_t value = take_number(text, at, 16, digits);
  if (at - begin != digits)
    syntax_error(line, fmt::format("the escape \\{} in a string needs {} hexadecimal digits", text[begin - 1], digits));
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    syntax_error(line, fmt::format("the escape \\{}{} in a string is no character", text[begin - 1],
                                   text.substr(begin, digits)));
  return value;
}

// One escape, from behind its backslash.
void decode_escape(std::string_view text, std::size_t& at, std::uint32_t line, std::string& out) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char c = text[at++];
  if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
    out.push_back(kMeanings[letter]);
  } else if (c == '\n') {
    // A line that goes on.
  } else if (c >= '0' && c <= '7') {
    --at;
    append_character(out, take_number(text, at, 8, 3));
  } else if (c == 'x') {
    append_character(out, hexadecimal(text, at, 2, line));
  } else if (c == 'u') {
    append_character(out, hexadecimal(text, at, 4, line));
  } else if (c == 'U') {
    append_character(out, hexadecimal(text, at, 8, line));
  } else if (c == 'N') {
    throw Failure{ErrorCode::kUnsupported,
                  fmt::format("line {}: characters by name (\\N in a string) are not in this interpreter", line), true};
  } else {
    out.push_back('\\');
    out.push_back(c);
  }
}

}  // namespace

std::string decode_string_literal(std::string_view inside, std::uint32_t line) {
  std::string out;
  for (std::size_t at = 0; at < inside.size();) {
    const std::size_t backslash = std::min(inside.find('\\', at), inside.size());
    out.append(inside.substr(at, backslash - at));
    at = backslash + 1;
    if (backslash < inside.size()) decode_escape(inside, at, line, out);
  }
  return out;
}

}  // namespace terrace::text::jinja
