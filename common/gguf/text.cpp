#include "common/gguf/text.h"

#include <algorithm>

#include <fmt/format.h>

namespace terrace::gguf {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// Bytes of the sequence that starts `text`, 0 if it is none (RFC 3629: no overlong forms, no surrogates).
std::size_t sequence_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i, unsigned char low = 0x80, unsigned char high = 0xbf) {
    return i < text.size() && at(i) >= low && at(i) <= high;
  };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned char low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : 0xbf;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned char low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xf4 ? 0x8f : 0xbf;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = sequence_bytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

bool is_printable(std::string_view text) { return std::none_of(text.begin(), text.end(), is_control) && is_utf8(text); }

std::string escaped(std::string_view text, std::size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  if (cut) {
    text = text.substr(0, max_bytes);
    // Not in the middle of a sequence: at most three bytes of it can stand before the cut.
    for (int i = 0; i < 3 && !text.empty() && !is_utf8(text); ++i) text.remove_suffix(1);
  }
  const bool utf8 = is_utf8(text);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(byte) || (!utf8 && byte > 0x7e)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return cut ? out + "..." : out;
}

std::string key_place(std::string_view key, std::optional<std::uint64_t> offset) {
  return offset ? fmt::format("key {} (offset {})", escaped(key), *offset) : fmt::format("key {}", escaped(key));
}

}  // namespace terrace::gguf
