#include "coordinator/sampler/grammar/scan.h"

#include "common/base/utf8.h"

namespace terrace::sampler::grammar {

std::optional<char32_t> take_code_point(std::string_view text, std::size_t& at) {
  const std::string_view rest = text.substr(at);
  if (rest.empty()) return std::nullopt;
  const Utf8Step step = utf8_step(rest);
  if (step.kind != Utf8Kind::kCharacter) return std::nullopt;
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(rest[i])); };
  char32_t c = step.length == 1 ? byte(0) : byte(0) & (0x7Fu >> step.length);
  for (std::size_t i = 1; i < step.length; ++i) c = c << 6 | (byte(i) & 0x3F);
  at += step.length;
  return c;
}

std::optional<std::uint32_t> take_hexadecimal(std::string_view text, std::size_t& at, std::size_t n_digits) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  if (text.size() - at < n_digits) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text.substr(at, n_digits)) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(digit < 16 ? digit : digit - 6);
  }
  at += n_digits;
  return value;
}

}  // namespace terrace::sampler::grammar
