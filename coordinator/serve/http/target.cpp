#include "coordinator/serve/http/target.h"

#include <utility>

namespace terrace::serve::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    out.push_back(c);
  }
  return out;
}

// Cuts `text` at the first `mark`; gives what is before it and leaves what is behind it.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = text.find(mark);
  const std::string_view before = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return before;
}

}  // namespace

std::optional<Target> parse_target(std::string_view target) {
  if (target == "*") return Target{"*", {}};
  if (const std::size_t scheme = target.find("://"); !target.starts_with('/') && scheme != std::string_view::npos) {
    const std::size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (!target.starts_with('/')) return std::nullopt;
  target = target.substr(0, target.find('#'));

  Target out;
  auto path = decode(take_until(target, '?'), false);
  if (!path) return std::nullopt;
  out.path = std::move(*path);
  while (!target.empty()) {
    std::string_view pair = take_until(target, '&');
    if (pair.empty()) continue;
    auto name = decode(take_until(pair, '='), true);
    auto value = decode(pair, true);
    if (!name || !value) return std::nullopt;
    out.query.emplace_back(std::move(*name), std::move(*value));
  }
  return out;
}

}  // namespace terrace::serve::http
