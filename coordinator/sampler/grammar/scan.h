// Characters out of a notation's text. Private to the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace terrace::sampler::grammar {

// The character at `at`, which moves behind it. Nothing: the text is at its end, or not UTF-8 there.
std::optional<char32_t> take_code_point(std::string_view text, std::size_t& at);

// The value of `n_digits` hexadecimal digits at `at`, which moves behind them. Nothing: there are fewer.
std::optional<std::uint32_t> take_hexadecimal(std::string_view text, std::size_t& at, std::size_t n_digits);

// Whether Unicode has a character at this place: no surrogate, nothing beyond the last.
constexpr bool is_character(std::uint32_t value) { return value < 0xD800 || (value > 0xDFFF && value <= 0x10FFFF); }

}  // namespace terrace::sampler::grammar
