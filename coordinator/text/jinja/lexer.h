// Source to tokens, as jinja2's lexer with trim_blocks and lstrip_blocks: line ends become \n, one at the end goes,
// white space around tags is cut here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::text::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    kData,           // text to print as it is
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,   // decoded
    kInteger,  // as written, without underscores
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  std::uint32_t line;

  bool is(Kind k, std::string_view t) const { return kind == k && text == t; }
  bool is_operator(std::string_view t) const { return is(Kind::kOperator, t); }
  bool is_name(std::string_view t) const { return is(Kind::kName, t); }
};

// Throws Failure. The last token is kEnd.
std::vector<Token> lex(std::string_view source);

// "line 12: ...": a template that is none.
[[noreturn]] void syntax_error(std::uint32_t line, const std::string& what);

}  // namespace terrace::text::jinja
