#include "tests/tools/random_model/vocabulary.h"

namespace terrace::tools {
namespace {

// The byte-level alphabet of GPT-2: printable bytes stand for themselves, the other 68 in rising order for U+0100 and
// on.
bool is_printable_byte(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

std::string utf8(std::uint32_t code_point) {  // below U+0800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

}  // namespace

Vocabulary make_vocabulary(std::uint32_t n_tokens) {
  Vocabulary out;
  out.tokens.reserve(n_tokens);
  std::uint32_t next_code_point = 0x100;
  for (std::uint32_t byte = 0; byte < kByteTokens; ++byte)
    out.tokens.push_back(utf8(is_printable_byte(byte) ? byte : next_code_point++));
  // Words in the order of their making; each is in turn the left part of 26 longer ones.
  std::vector<std::string> words = {out.tokens[' ']};
  for (char c = 'a'; c <= 'z'; ++c) words.emplace_back(1, c);
  for (std::size_t left = 0; out.tokens.size() < n_tokens; ++left) {
    for (char c = 'a'; c <= 'z' && out.tokens.size() < n_tokens; ++c) {
      out.merges.push_back(words[left] + ' ' + c);
      words.push_back(words[left] + c);
      out.tokens.push_back(words.back());
    }
  }
  return out;
}

}  // namespace terrace::tools
