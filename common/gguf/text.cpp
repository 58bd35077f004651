#include "common/gguf/text.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/utf8.h"

namespace terrace::gguf {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

}  // namespace

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
