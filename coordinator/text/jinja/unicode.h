// Characters of UTF-8 text as Python's str sees them: counted, classified, in other case. Text here is always UTF-8:
// sources and variables are checked where they come in.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::text::jinja {

// Bytes of the character that begins with `lead`.
std::size_t character_bytes(char lead);
char32_t character_at(std::string_view text, std::size_t at);
// Where the character that ends before `end` begins.
std::size_t character_before(std::string_view text, std::size_t end);
void append_character(std::string& out, char32_t character);
std::size_t count_characters(std::string_view text);
// The byte at which character `n` begins; the size where there are no more.
std::size_t offset_of_character(std::string_view text, std::size_t n);

bool is_space(char32_t character);      // str.isspace(), and \s
bool is_line_end(char32_t character);   // where str.splitlines() cuts; \r\n is one
bool is_printable(char32_t character);  // what repr() writes as it is
bool is_word(char32_t character);       // \w

// Byte counts at the two ends of `text` that strip() takes: white space, or the characters of `set`.
struct Ends {
  std::size_t left = 0;
  std::size_t right = 0;
};
Ends ends_to_strip(std::string_view text, std::optional<std::string_view> set);

// Case by Unicode's simple mapping (one character for one), and the two letters of the sharp s.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalised(std::string_view text);  // the first character upper, the rest lower
std::string titled(std::string_view text);       // str.title(): so for each run of letters

// str.isalpha() and its kin: false for an empty text.
enum class CharacterClass { kAlpha, kDecimal, kDigit, kNumeric, kAlphanumeric, kSpace };
bool all_of(std::string_view text, CharacterClass what);
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

}  // namespace terrace::text::jinja
