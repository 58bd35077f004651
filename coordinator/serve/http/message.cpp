#include "coordinator/serve/http/message.h"

#include <algorithm>

namespace terrace::serve::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

struct Phrase {
  int status;
  std::string_view text;
};
constexpr Phrase kPhrases[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (equal_in_any_case(key, name)) return value;
  return {};
}

std::optional<std::string_view> Request::query_value(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return std::nullopt;
}

std::string_view Request::parameter(std::string_view name) const {
  for (const auto& [key, value] : parameters)
    if (key == name) return value;
  return {};
}

std::string_view reason_phrase(int status) {
  const auto* found = std::ranges::find(kPhrases, status, &Phrase::status);
  return found == std::end(kPhrases) ? "Unknown" : found->text;
}

}  // namespace terrace::serve::http
