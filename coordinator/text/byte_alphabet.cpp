#include "coordinator/text/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "common/base/utf8.h"

namespace terrace::text {
namespace {

constexpr std::size_t kCharacters = 256 + 68;  // code points U+0000 .. U+0143

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<std::uint16_t, 256> character{};    // byte -> code point
  std::array<std::int16_t, kCharacters> byte{};  // code point -> byte, -1: not of the alphabet
};

constexpr Tables make_tables() {
  Tables tables;
  tables.byte.fill(-1);
  std::uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::uint16_t character = stands_for_itself(byte) ? static_cast<std::uint16_t>(byte) : next++;
    tables.character[byte] = character;
    tables.byte[character] = static_cast<std::int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::string alphabet_character(std::uint8_t byte) {
  const unsigned character = kTables.character[byte];
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Step step = utf8_step(token);
    if (step.kind != Utf8Kind::kCharacter || step.length > 2) return std::nullopt;
    unsigned character = static_cast<std::uint8_t>(token[0]);
    if (step.length == 2) character = (character & 0x1F) << 6 | (static_cast<std::uint8_t>(token[1]) & 0x3F);
    if (character >= kCharacters || kTables.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kTables.byte[character]);
    token.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace terrace::text
