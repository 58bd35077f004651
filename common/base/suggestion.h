// What a misspelt word may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace terrace {

// "; did you mean --max-tokens?" for the nearest of `known` within a third of the word's length, else "". `prefix`
// stands before the word: "--" for flags.
std::string suggestion(std::string_view word, std::span<const std::string> known, std::string_view prefix = "");

}  // namespace terrace
