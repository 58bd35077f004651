#include "coordinator/serve/http/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "common/base/text_file.h"
#include "common/security/constant_time.h"

namespace terrace::serve::http {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = line.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

security::Sha256 digest(std::string_view key) { return security::sha256(std::as_bytes(std::span(key))); }

}  // namespace

Result<ApiKeys> ApiKeys::from_file(const std::filesystem::path& file) {
  const auto text = read_text_file(file, kMaxFileBytes);
  if (!text.ok()) return Error(text.error().code(), text.error().text() + "; it should hold one API key a line");
  ApiKeys keys;
  std::size_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view key = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (key.empty() || key.starts_with('#')) continue;
    const Status added = keys.add(key);
    if (!added.ok()) return added.error().in(fmt::format("{}: line {}", file.string(), number));
  }
  if (keys.empty())
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: no API key in it; one a line", file.string()));
  return keys;
}

Status ApiKeys::add(std::string_view key) {
  const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
  if (key.empty() || !printable)
    return Error(ErrorCode::kInvalidArgument, "an API key is made of printable ASCII characters without spaces");
  digests_.push_back(digest(key));
  return {};
}

std::optional<std::size_t> ApiKeys::find(std::string_view key) const {
  const security::Sha256 asked = digest(key);
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < digests_.size(); ++i)  // all of them: the time does not tell which
    if (security::constant_time_equal(digests_[i], asked)) found = i;
  return found;
}

}  // namespace terrace::serve::http
