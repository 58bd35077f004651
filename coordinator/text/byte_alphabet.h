// The alphabet of byte-level BPE: every byte as one printable character. Vocabularies and merges are written in it.
//
// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves; the other 68 bytes, in ascending order, are U+0100, U+0101
// and so on (a space is U+0120, a newline U+010A). Source: GPT-2's encoder.py, bytes_to_unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::text {

// The character of `byte` in UTF-8.
std::string alphabet_character(std::uint8_t byte);

// The bytes that `token` spells; nothing if a character of it is not of the alphabet or it is not UTF-8.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace terrace::text
