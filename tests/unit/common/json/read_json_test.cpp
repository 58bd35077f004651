// JSON that did not come from this program: whatever it is, an error or a value of bounded depth.
#include "common/json/read_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace terrace {
namespace read_json_test {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string said_of(std::string_view text, const JsonBounds& bounds = {}) {
  const auto read = read_json<json>(text, bounds);
  if (read.ok()) return "it was read";
  EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
  return read.error().text();
}

TEST(ReadJson, WhatIsJson_IsReadAsItIs) {
  EXPECT_EQ(read_json<json>(R"({"b":[1,2.5,null],"a":"x"})").value(), (json{{"a", "x"}, {"b", {1, 2.5, nullptr}}}));
  EXPECT_EQ(read_json<ordered_json>(R"({"b":1,"a":2})").value().dump(), R"({"b":1,"a":2})");
}

TEST(ReadJson, DepthIsBounded_WhateverIsNestedInWhat) {
  EXPECT_EQ(said_of(nested(100)), "it was read");
  EXPECT_EQ(said_of(nested(101)), "the JSON is nested deeper than 100 levels");
  EXPECT_EQ(said_of(nested(101), {.depth = 101}), "it was read");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(said_of(objects), "the JSON is nested deeper than 100 levels");
  EXPECT_EQ(said_of(nested(1'000'000)), "the JSON is nested deeper than 100 levels");
}

TEST(ReadJson, KeyThatStandsTwice_IsRefusedAndFitForATerminal) {
  EXPECT_EQ(said_of(R"({"a":1,"b":{"a":2}})"), "it was read");
  EXPECT_EQ(said_of(R"({"a":1,"a":2})"), "the JSON key \"a\" stands twice in one object");
  const std::string said = said_of(R"({"\u001b[31m":1,"\u001b[31m":2})");
  EXPECT_THAT(said, HasSubstr("stands twice"));
  EXPECT_THAT(said, Not(HasSubstr("\x1b")));
}

TEST(ReadJson, ValuesAndKeys_AreBounded) {
  EXPECT_EQ(said_of("[1,2,3]", {.values = 3}), "the JSON has more than 3 values");
  EXPECT_EQ(said_of(R"({"a":[1],"b":2})", {.values = 4}), "it was read") << "keys and ends are none";
  EXPECT_EQ(said_of(R"({"a":[1],"b":2})", {.values = 3}), "the JSON has more than 3 values");
  EXPECT_EQ(said_of("[1,2,3]", {.values = 4}), "it was read");
  EXPECT_EQ(said_of(R"({"a":1,"b":2})", {.keys = 1}), "the JSON has more than 1 keys in one object");
}

TEST(ReadJson, WhatIsNoJson_IsSaidByItsByte) {
  EXPECT_EQ(said_of(R"({"a": })"), "no JSON: byte 7 is not as it should be");
  for (const char* text : {"", "x", "[1,]", "[NaN]", "{} {}", "\"\xff\"", "[\"\x1b\"]"})
    EXPECT_THAT(said_of(text), HasSubstr("no JSON: byte ")) << text;
  EXPECT_EQ(said_of("[1e999]"), "JSON with a number that no double holds");
}

TEST(ReadJson, Fault_NamesTheFieldAndWhetherItIsJson) {
  JsonFault fault;
  EXPECT_FALSE(read_json<json>(R"({"ok":1,"stop":[[[]]]})", {.depth = 3}, &fault).ok());
  EXPECT_EQ(fault.field, "stop");
  EXPECT_EQ(fault.why, "is nested deeper than 3 levels");
  EXPECT_TRUE(fault.is_json);
  EXPECT_FALSE(read_json<json>(R"({"seed":)", {}, &fault).ok());
  EXPECT_EQ(fault.field, "seed");
  EXPECT_FALSE(fault.is_json);
}

}  // namespace read_json_test
}  // namespace terrace
