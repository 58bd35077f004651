#include <gtest/gtest.h>

#include "tests/unit/coordinator/sampler/grammar/matching.h"

namespace terrace::sampler::grammar {
namespace {

struct Held {
  std::string schema;
  std::vector<std::string> taken;
  std::vector<std::string> not_taken;
};

void check(std::span<const Held> cases) {
  for (const Held& c : cases) {
    const auto grammar = Grammar::from_json_schema(c.schema);
    ASSERT_TRUE(grammar.ok()) << c.schema << "\n" << grammar.error().text();
    for (const std::string& text : c.taken)
      EXPECT_TRUE(takes(**grammar, text)) << c.schema << "\ndoes not take " << text;
    for (const std::string& text : c.not_taken) EXPECT_FALSE(takes(**grammar, text)) << c.schema << "\ntakes " << text;
  }
}

TEST(JsonSchema, Types_AreHeld) {
  const Held cases[] = {
      {R"({"type": "null"})", {"null"}, {"", "nul", " null", "null ", "0"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"type": "integer"})",
       {"0", "-7", "123456789012345678"},
       {"-0", "01", "1.0", "1e2", "+1", "", "-", "1234567890123456789"}},
      {R"({"type": "number"})",
       {"0", "-0", "-7.25", "1e5", "1.5E-07", "10"},
       {"01", ".5", "5.", "1e", "1e999", "NaN", "-"}},
      {R"({"type": "string"})",
       {R"("")", R"("a\"\\\/\n\u00e9\ud83d\uDE00")", "\"\xc3\xa9\xf0\x9f\x98\x80\x7f\""},
       {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\q")", "\"\n\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"",
        "a", R"("\u12")"}},
      {R"({"type": "array"})",
       {"[]", "[ ]", "[1,[2],{\"a\":null}]", "[1 ,\n2 ]"},
       {"[  ]", "[1,]", "[,1]", "[1", "[1  ,2]", "[1,  2]"}},
      {R"({"type": "object"})",
       {"{}", "{ }", R"({"a":1,"b" : { "c":[ ] } })"},
       {"{  }", R"({"a"})", R"({"a":1,})", R"({"a":  1})", "[]", R"({"a":1  })"}},
      {R"({"type": ["string", "null"]})", {"null", R"("x")"}, {"1"}},
      {R"({"type": "string", "nullable": true})", {"null", R"("x")"}, {"1"}},
      {R"({"type": "string", "nullable": false})", {R"("x")"}, {"null"}},
      {R"({"type": "string", "nullable": true, "enum": ["a"]})", {R"("a")"}, {"null"}},
      {"{}", {"1", "null", R"({"a":[true]})", R"("x")"}, {"", "tru"}},
      {"true", {"1", "null"}, {""}},
      {R"({"minLength": 1})", {R"("x")"}, {R"("")", "1"}},  // keywords of a type imply it
      {R"({"title": "t", "description": "d", "default": 1, "examples": [2], "$schema": "s", "$id": "i", "$comment": "c",
           "deprecated": true, "readOnly": true, "type": "null"})",
       {"null"},
       {"1"}},
  };
  check(cases);
}

TEST(JsonSchema, Constants_AreHeld) {
  const Held cases[] = {
      {R"({"enum": ["a", "ab", 1, 1.5, null, true, {"k": [1, "\n"]}]})",
       {R"("a")", R"("ab")", "1", "1.5", "null", "true", R"({"k":[1,"\n"]})"},
       {R"("b")", "2", "", R"("abc")", "false"}},
      {R"({"const": "x\u00e9\"y"})", {"\"x\xc3\xa9\\\"y\""}, {R"("x")"}},
      {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
      {R"({"type": "integer", "enum": [1.0, 1.5, 2]})", {"1.0", "2"}, {"1.5"}},
      {R"({"enum": [1, 2, 3], "const": 2.0})", {"2.0"}, {"1", "3"}},
      {R"({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]})", {"2"}, {"1", "3"}},
  };
  check(cases);
}

TEST(JsonSchema, Strings_AreHeld) {
  const Held cases[] = {
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", "\"\xc3\xa9\xf0\x9f\x98\x80x\"", R"("\n\u00e9")", R"("\ud83d\ude00ab")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
      {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("1999-12-31")", R"("2000-02-29")"},
       {R"("2023-02-29")", R"("2100-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("24-01-01")", R"("2024-00-10")",
        R"("2024-01-00")"}},
      {R"({"type": "string", "format": "time"})",
       {R"("23:59:59Z")", R"("00:00:00.123+05:30")"},
       {R"("24:00:00Z")", R"("12:00:00")", R"("12:60:00Z")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-29T23:59:59.5-08:00")"},
       {R"("2024-02-29 23:59:59Z")", R"("2024-02-30T00:00:00Z")"}},
      {R"({"type": "string", "format": "uuid"})",
       {R"("123e4567-e89b-12d3-A456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")", R"("g23e4567-e89b-12d3-a456-426614174000")"}},
      {R"({"type": "string", "pattern": "^[a-c]{2,3}$"})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")", R"("abd")"}},
      {R"({"type": "string", "pattern": "b+"})", {R"("b")", R"("abbc")"}, {R"("")", R"("ac")"}},
      {R"({"type": "string", "pattern": "^a|b$|^(?:c(d)?)$"})",
       {R"("ax")", R"("xb")", R"("c")", R"("cd")"},
       {R"("x")", R"("xc")", R"("cx")"}},
      {R"({"type": "string", "pattern": "^\\d\\D\\w\\W\\s\\S$"})",
       {R"("1xa- x")", "\"1\xc3\xa9_.\xc2\xa0-\""},
       {R"("xxa- x")", R"("11a- x")"}},
      {R"({"type": "string", "pattern": "^[\"\\\\\\n\\x07]+$"})", {R"("\"\\\n\u0007")"}, {R"("a")", R"("\u000a")"}},
      {R"({"type": "string", "pattern": "^.\\.\\u00e9[^a\\d]{0,2}?$"})",
       {"\"x.\xc3\xa9\"",
        "\"x.\xc3\xa9"
        "bc\""},
       {"\"xx\xc3\xa9\"",
        "\"x.\xc3\xa9"
        "a\"",
        R"("\n.")"}},
  };
  check(cases);
}

TEST(JsonSchema, Numbers_AreHeld) {
  const Held cases[] = {
      {R"({"type": "integer", "minimum": 3, "maximum": 120})",
       {"3", "9", "10", "99", "100", "120"},
       {"2", "121", "0", "-3", "03", "1000"}},
      {R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5})", {"4"}, {"3", "5"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 7})",
       {"-12", "-1", "0", "7", "-9"},
       {"-13", "8", "-0", "-20"}},
      {R"({"type": "integer", "minimum": -20, "maximum": -11})", {"-20", "-11", "-15"}, {"-10", "-21", "0", "11"}},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type": "integer", "minimum": 95})", {"95", "100", "999999999999999999"}, {"94", "9", "-95"}},
      {R"({"type": "integer", "maximum": 5, "exclusiveMaximum": 5})", {"4", "-100"}, {"5"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "1.0", "0.000001", "1.00"},
       {"1.1", "-0.1", "-0", "1.01", "2", "1e0"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
       {"0.5", "0.01", "0.999999"},
       {"0", "0.0", "1", "1.0", "0.00"}},
      {R"({"type": "number", "minimum": -1.25, "maximum": 2.5})",
       {"-1.25", "-1.2", "-1.249", "0", "2.5", "2.49", "-0.5", "2", "2.500"},
       {"-1.26", "2.51", "-1.3", "-2", "3", "-1.251", "2.501"}},
      {R"({"type": "number", "exclusiveMinimum": 2.5})",
       {"2.51", "3", "2.500001", "999999999.9"},
       {"2.5", "2.50", "2", "1000000000"}},
      {R"({"type": "number", "maximum": -0.5})", {"-0.5", "-0.51", "-7"}, {"-0.4", "0", "-0.49", "1"}},
      {R"({"type": "number", "minimum": 1.125, "maximum": 1.25})",
       {"1.125", "1.2", "1.25", "1.1250"},
       {"1.12", "1.26", "1", "1.1"}},
      {R"({"type": "integer", "minimum": 1e2, "maximum": 1.02E2})", {"100", "102"}, {"99", "103"}},
  };
  check(cases);
}

TEST(JsonSchema, IntegersBetweenAllSmallBounds_AreJustThose) {
  for (int low = -12; low <= 112; low += 3) {
    for (int high = low; high <= 112; high += 7) {
      const auto grammar = Grammar::from_json_schema(R"({"type": "integer", "minimum": )" + std::to_string(low) +
                                                     R"(, "maximum": )" + std::to_string(high) + "}");
      ASSERT_TRUE(grammar.ok());
      for (int i = -120; i <= 1200; i += i < 125 ? 1 : 50)
        ASSERT_EQ(takes(**grammar, std::to_string(i)), low <= i && i <= high) << low << " " << high << " " << i;
    }
  }
}

TEST(JsonSchema, NumbersBetweenAllSmallBounds_AreJustThose) {
  for (int low = -130; low <= 130; low += 13) {
    for (int high = low; high <= 130; high += 17) {
      const auto decimal = [](int hundredths) {
        return std::to_string(hundredths / 100.0).substr(0, hundredths < 0 ? 5 : 4);
      };
      const auto grammar = Grammar::from_json_schema(R"({"type": "number", "exclusiveMinimum": )" + decimal(low) +
                                                     R"(, "maximum": )" + decimal(high) + "}");
      const bool is_empty = low == high;
      ASSERT_EQ(grammar.ok(), !is_empty) << low << " " << high;
      if (is_empty) continue;
      for (int i = -260; i <= 260; ++i) {
        if (i > -100 && i < 0 && i / 100 == 0 && decimal(i) == "-0.00") continue;
        ASSERT_EQ(takes(**grammar, decimal(i)), low < i && i <= high) << low << " " << high << " " << decimal(i);
      }
    }
  }
}

TEST(JsonSchema, Arrays_AreHeld) {
  const Held cases[] = {
      {R"({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 3})",
       {"[null]", "[null,null, null]"},
       {"[]", "[null,null,null,null]", "[1]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"items": {"type": "integer", "minimum": 1, "maximum": 2}})", {"[]", "[1,2,1]"}, {"[3]", "{}"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}]})",
       {"[]", "[null]", "[null,true]"},
       {"[true]", "[null,true,1]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"const": 1}, "minItems": 2, "maxItems": 4})",
       {"[null,true]", "[null,true,1]", "[null,true,1,1]"},
       {"[null]", "[null,true,1,1,1]", "[null,true,2]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "null"}], "items": false})",
       {"[]", "[null,null]"},
       {"[null,null,null]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "null"}], "maxItems": 1})",
       {"[]", "[null]"},
       {"[null,null]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 2})", {"[null,5]"}, {"[null]"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "uniqueItems": false, "items": {"type": "null"}})", {"[null,null]"}, {}},
  };
  check(cases);
}

TEST(JsonSchema, Objects_AreHeld) {
  const Held cases[] = {
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"type": "integer"}}, "required": ["b"]})",
       {R"({"b":true})", R"({"a":null,"b":true})", R"({"a":null,"b":true,"c":1})", R"({"b":true,"c":1})",
        R"({ "b" : true })"},
       {"{}", R"({"a":null})", R"({"b":true,"a":null})", R"({"b":true,"d":1})", R"({"b":true,"b":true})",
        R"({,"b":true})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}})",
       {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {R"({"a":null"b":null})", R"({"x":1})"}},
      {R"({"type": "object", "properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"ab":null})", R"({"ab":null,"a":1,"abc":2,"":3})", R"({"b":1})", "{\"a\xc3\xa9\":1}"},
       {R"({"ab":1})", R"({"a":null})", R"({"\u0061b":1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": true})",
       {R"({"a":null,"x":[]})", R"({"x":1})"},
       {R"({"a":1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": false})",
       {R"({"a":null})"},
       {R"({"x":1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x":1,"\n":2})"},
       {R"({"x":null})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"x":1})"}},
      {R"({"required": ["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":2})"}},
      {R"({"properties": {"a": {"type": "null"}}, "required": ["x"], "additionalProperties": {"type": "boolean"}})",
       {R"({"x":true})", R"({"a":null,"x":true,"y":false})"},
       {R"({"a":null})", R"({"x":1})"}},
      {R"({"properties": {"a": false, "b": {"type": "null"}}})", {"{}", R"({"b":null})"}, {R"({"a":1})"}},
      {R"({"properties": {"a\"\n": {"type": "null"}}})", {R"({"a\"\n":null})"}, {}},
  };
  check(cases);
}

TEST(JsonSchema, Combinations_AreHeld) {
  const Held cases[] = {
      {R"({"anyOf": [{"type": "null"}, {"type": "integer"}]})", {"null", "3"}, {R"("x")"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}, "a": {"minimum": 5}}}]})",
       {R"({"a":5})", R"({"a":7,"b":null})"},
       {R"({"a":4})", R"({"b":null})"}},
      {R"({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "integer"]}]})", {"null"}, {"1", R"("x")"}},
      {R"({"allOf": [{"minLength": 2}, {"minLength": 1, "maxLength": 3}], "maxLength": 2})",
       {R"("ab")"},
       {R"("a")", R"("abc")"}},
      {R"({"type": "object", "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false}]})",
       {R"({"a":1})"},
       {"{}"}},
      {R"({"oneOf": [{"type": "null"}, {"type": "string"}]})", {"null", R"("x")"}, {"1"}},
      {R"({"oneOf": [{"const": "a"}, {"const": "b"}]})", {R"("a")", R"("b")"}, {R"("c")"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "x"}, "v": {"type": "null"}}, "required": ["k"]}, {"properties": {"k": {"const": "y"}}, "required": ["k"]}]})",
       {R"({"k":"x","v":null})", R"({"k":"y"})"},
       {R"({"k":"z"})", "{}"}},
      {R"({"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":1})"}},
      {R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}, "v": {"type": "integer"}}, "required": ["v"]}}})",
       {R"({"v":1})", R"({"left":{"left":{"v":3},"v":2},"v":1})"},
       {R"({"left":{},"v":1})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"definitions": {"a/b~c": {"type": "null"}}, "$ref": "#/definitions/a~1b~0c"})", {"null"}, {"1"}},
      {R"({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}}})",
       {"null", R"({"next":{"next":null}})"},
       {"{}"}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "description": "d", "$defs": {"a": {"enum": [1, 2]}}})", {"1"}, {"3"}},
      {R"({"anyOf": [false, {"type": "null"}]})", {"null"}, {"1"}},
  };
  check(cases);
}

TEST(JsonSchema, JsonObject_IsAnyObject) {
  const auto grammar = Grammar::json_object();
  EXPECT_TRUE(takes(*grammar, R"({"a":[1,{"b":"c"}],"d":null})"));
  EXPECT_FALSE(takes(*grammar, "[]"));
  EXPECT_EQ(match(*grammar, R"({"a)"), Match::kBeginning);
}

}  // namespace
}  // namespace terrace::sampler::grammar
