#include "coordinator/serve/page/page.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "common/base/check.h"
#include "common/security/sha256.h"
#include "coordinator/serve/page/embedded.h"

namespace terrace::serve::page {
namespace {

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) { return i + k < bytes.size() ? std::to_integer<unsigned>(bytes[i + k]) : 0u; };
    const unsigned group = at(0) << 16 | at(1) << 8 | at(2);
    for (const unsigned shift : {18u, 12u, 6u, 0u}) out += kDigits[group >> shift & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) out[out.size() - 1 - i] = '=';
  return out;
}

std::string source_of(std::string_view text) {
  return fmt::format("'sha256-{}'", base64(security::sha256(std::as_bytes(std::span(text)))));
}

std::string put(std::string html, std::string_view mark, std::string_view text) {
  const std::size_t at = html.find(mark);
  TERRACE_CHECK(at != std::string::npos, "page.html lacks a mark");
  return html.replace(at, mark.size(), text);
}

}  // namespace

Page make_page() {
  Page page;
  page.html = put(put(embedded::html(), "@PAGE_STYLE@", embedded::style()), "@PAGE_SCRIPT@", embedded::script());
  page.policy = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
      source_of(embedded::script()), source_of(embedded::style()));
  return page;
}

}  // namespace terrace::serve::page
