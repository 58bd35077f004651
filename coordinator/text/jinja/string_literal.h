#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::text::jinja {

// The text that a literal's inside means: Python's escapes (\n, \x41, \101, \u00e9, a backslash before a line end). A
// backslash before anything else stays. Throws Failure: a cut escape, half a surrogate pair, \N{...}.
std::string decode_string_literal(std::string_view inside, std::uint32_t line);

}  // namespace terrace::text::jinja
