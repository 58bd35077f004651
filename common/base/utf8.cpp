#include "common/base/utf8.h"

#include <cstdint>

namespace terrace {
namespace {

struct Lead {
  std::size_t length;       // of the character, 0: not a lead byte
  std::uint8_t low = 0x80;  // allowed second byte
  std::uint8_t high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // no overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const Lead lead = lead_of(static_cast<std::uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Kind::kBad, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kCut, i};
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const bool allowed = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!allowed) return {Utf8Kind::kBad, i};
  }
  return {Utf8Kind::kCharacter, lead.length};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kCharacter) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string replace_bad_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.kind == Utf8Kind::kCharacter ? text.substr(0, step.length) : kReplacementCharacter;
    text.remove_prefix(step.length);
  }
  return out;
}

}  // namespace terrace
