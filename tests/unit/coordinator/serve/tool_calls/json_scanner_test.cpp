#include "coordinator/serve/tool_calls/json_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace terrace::serve::tool_calls {
namespace {

using State = JsonScanner::State;

State after(std::string_view text) {
  JsonScanner scanner;
  for (const char byte : text) scanner.feed(byte);
  return scanner.state();
}

TEST(JsonScanner, WholeValues_AreDone) {
  for (const char* text :
       {"{}", "[]", " {\"a\": [1, -0.5e+10, true, false, null, \"x\\n\\u00e9\\\"\"], \"b\": {\"c\": {}}}", "\"x\"",
        "true", "[0]", "[10,\t2E-3 ,\r\n3.25]", "{\"a\":0}"})
    EXPECT_EQ(after(text), State::kDone) << text;
}

TEST(JsonScanner, BeginningsOfValues_AreOpen) {
  const std::string_view text = R"({"a": [1, -0.5e+10, true], "b\u0041": {"c": ""}})";
  for (std::size_t n = 0; n < text.size(); ++n) {
    const State state = after(text.substr(0, n));
    EXPECT_NE(state, State::kDone) << text.substr(0, n);
    EXPECT_NE(state, State::kBad) << text.substr(0, n);
  }
  EXPECT_EQ(after(text), State::kDone);
}

TEST(JsonScanner, WhatIsNoJson_IsBadAtOnce) {
  for (const char* text :
       {"{a", "{\"a\" 1", "{\"a\":1,}", "[1,]", "[01",  "[1.e",  "[-x",      "[+",  "[.5",  "{\"a\":tru}", "[NaN",
        "'",  "{]",       "[}",         "[1 2", "\"\n", "\"\\x", "\"\\u12g", "{}x", "[1e]", "[,",          "{,"})
    EXPECT_EQ(after(text), State::kBad) << text;
}

TEST(JsonScanner, DeeperThanTheLimit_IsBad) {
  EXPECT_NE(after(std::string(JsonScanner::kMaxDepth, '[')), State::kBad);
  EXPECT_EQ(after(std::string(JsonScanner::kMaxDepth + 1, '[')), State::kBad);
}

}  // namespace
}  // namespace terrace::serve::tool_calls
