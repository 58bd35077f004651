#include "coordinator/serve/page/page.h"

#include <gtest/gtest.h>

#include <regex>
#include <span>
#include <string>
#include <string_view>

#include "common/security/sha256.h"

namespace terrace::serve::page {
namespace {

std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

std::string hex_of_base64(std::string_view digits) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> bytes;
  unsigned bits = 0, held = 0;
  for (const char digit : digits) {
    if (digit == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(digit));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> held));
  }
  return security::to_hex(bytes);
}

std::string hex_of_hash(std::string_view text) {
  return security::to_hex(security::sha256(std::as_bytes(std::span(text))));
}

TEST(Page, PolicyNamesTheStyleAndTheScriptThatAreInThePage) {
  const Page page = make_page();
  const std::string style = between(page.html, "<style>", "</style>");
  const std::string script = between(page.html, "<script type=\"module\">", "</script>");
  ASSERT_GT(style.size(), 1000U);
  ASSERT_GT(script.size(), 10'000U);
  EXPECT_EQ(hex_of_base64(between(page.policy, "style-src 'sha256-", "'")), hex_of_hash(style));
  EXPECT_EQ(hex_of_base64(between(page.policy, "script-src 'sha256-", "'")), hex_of_hash(script));
  EXPECT_EQ(page.policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(page.policy.rfind("default-src 'none'; ", 0), 0U);
}

TEST(Page, IsWhole_AndNamesNoOtherPlaceToFetchFrom) {
  const Page page = make_page();
  EXPECT_EQ(page.html.find("@PAGE_"), std::string::npos);
  EXPECT_EQ(page.html.rfind("<!DOCTYPE html>", 0), 0U);
  EXPECT_NE(page.html.find("</html>\n"), std::string::npos);
  const std::regex fetched(R"re((src|href|action)="(?!#|data:)|url\(|@import|import\s*\(|\bfrom\s+")re");
  std::smatch match;
  EXPECT_FALSE(std::regex_search(page.html, match, fetched)) << match.str();
}

TEST(Page, ScriptMakesNoHtmlOfText) {
  const std::string html = make_page().html;
  for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"})
    EXPECT_EQ(html.find(way), std::string::npos) << way;
}

}  // namespace
}  // namespace terrace::serve::page
