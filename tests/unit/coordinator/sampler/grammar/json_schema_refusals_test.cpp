#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/sampler/grammar/grammar.h"

namespace terrace::sampler {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchema, WhatCannotBeHeld_IsRefusedByNameAndPlace) {
  const struct {
    std::string schema;
    ErrorCode code;
    std::string message;
  } cases[] = {
      {R"({"multipleOf": 2})", ErrorCode::kUnsupported, "schema, /multipleOf: this keyword cannot be held"},
      {R"({"properties": {"a/b": {"type": "array", "contains": {}}}})", ErrorCode::kUnsupported,
       "schema, /properties/a~1b/contains:"},
      {R"({"not": {}})", ErrorCode::kUnsupported, "/not"},
      {R"({"if": {}})", ErrorCode::kUnsupported, "/if"},
      {R"({"then": {}})", ErrorCode::kUnsupported, "/then"},
      {R"({"else": {}})", ErrorCode::kUnsupported, "/else"},
      {R"({"patternProperties": {}})", ErrorCode::kUnsupported, "/patternProperties"},
      {R"({"propertyNames": {}})", ErrorCode::kUnsupported, "/propertyNames"},
      {R"({"minProperties": 1})", ErrorCode::kUnsupported, "/minProperties"},
      {R"({"maxProperties": 1})", ErrorCode::kUnsupported, "/maxProperties"},
      {R"({"dependentRequired": {}})", ErrorCode::kUnsupported, "/dependentRequired"},
      {R"({"dependentSchemas": {}})", ErrorCode::kUnsupported, "/dependentSchemas"},
      {R"({"dependencies": {}})", ErrorCode::kUnsupported, "/dependencies"},
      {R"({"unevaluatedProperties": false})", ErrorCode::kUnsupported, "/unevaluatedProperties"},
      {R"({"unevaluatedItems": false})", ErrorCode::kUnsupported, "/unevaluatedItems"},
      {R"({"additionalItems": false})", ErrorCode::kUnsupported, "/additionalItems"},
      {R"({"minContains": 1})", ErrorCode::kUnsupported, "/minContains"},
      {R"({"contentEncoding": "base64"})", ErrorCode::kUnsupported, "/contentEncoding"},
      {R"({"$dynamicRef": "#a"})", ErrorCode::kUnsupported, "/$dynamicRef"},
      {R"({"$anchor": "a"})", ErrorCode::kUnsupported, "/$anchor"},
      {R"({"items": {"$id": "a"}})", ErrorCode::kUnsupported, "/items/$id: it cannot be held but at the top"},
      {R"({"discriminator": {}})", ErrorCode::kUnsupported, "/discriminator"},
      {R"({"x-order": 1})", ErrorCode::kUnsupported, "/x-order"},
      {R"({"uniqueItems": true})", ErrorCode::kUnsupported, "/uniqueItems"},
      {R"({"items": [{}]})", ErrorCode::kUnsupported, "/items: a list of schemas is an old form"},
      {R"({"exclusiveMinimum": true})", ErrorCode::kUnsupported, "/exclusiveMinimum: true or false is an old form"},
      {R"({"format": "email"})", ErrorCode::kUnsupported, "/format: \"email\" cannot be held"},
      {R"({"type": "integer", "format": "int32"})", ErrorCode::kUnsupported, "/format: \"int32\" cannot be held"},
      {R"({"nullable": true, "anyOf": [{"type": "string"}]})", ErrorCode::kUnsupported, "/nullable: without type"},
      {R"({"format": "date", "minLength": 3})", ErrorCode::kUnsupported, "/format: beside minLength"},
      {R"({"pattern": "a", "maxLength": 3})", ErrorCode::kUnsupported, "/pattern: beside minLength"},
      {R"_({"pattern": "(?=a)"})_", ErrorCode::kUnsupported, "/pattern: at byte 0: lookaround"},
      {R"({"pattern": "(a)\\1"})", ErrorCode::kUnsupported, "/pattern: at byte 3: this escape"},
      {R"({"pattern": "a\\b"})", ErrorCode::kUnsupported, "/pattern: at byte 1: this escape"},
      {R"({"pattern": "a^b"})", ErrorCode::kUnsupported, "/pattern: at byte 1: an anchor"},
      {R"({"pattern": "a("})", ErrorCode::kInvalidArgument, "/pattern: at byte 1: this group is not closed"},
      {R"_({"pattern": "a)"})_", ErrorCode::kInvalidArgument, "/pattern: at byte 1: this group is not open"},
      {R"({"pattern": "*"})", ErrorCode::kInvalidArgument, "/pattern: at byte 0"},
      {R"({"pattern": "[b-a]"})", ErrorCode::kInvalidArgument, "/pattern: at byte 1: this range ends"},
      {R"({"pattern": "a{2,1}"})", ErrorCode::kInvalidArgument, "/pattern: at byte 1: write {m}"},
      {R"({"$ref": "http://x/y"})", ErrorCode::kUnsupported, "/$ref: only references into this schema"},
      {R"({"$ref": "#/$defs/none"})", ErrorCode::kInvalidArgument,
       "schema, /$defs/none: a $ref leads here, and nothing is here"},
      {R"({"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {}}})", ErrorCode::kUnsupported,
       "/$ref: other keywords beside it"},
      {R"({"enum": ["a"], "minLength": 1})", ErrorCode::kUnsupported, "/minLength: beside enum or const"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", ErrorCode::kUnsupported,
       "/oneOf: a value may be valid against branches 0 and 1"},
      {R"({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})", ErrorCode::kUnsupported, "/oneOf"},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
       ErrorCode::kUnsupported, "/allOf/1: additionalProperties beside other properties"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", ErrorCode::kUnsupported,
       "two different values of pattern"},
      {R"({"allOf": [{"prefixItems": [{}]}, {"minItems": 1}]})", ErrorCode::kUnsupported,
       "prefixItems in one part of allOf"},
      {R"({"allOf": [{"const": "a"}, {"minLength": 1}]})", ErrorCode::kUnsupported, "enum or const beside keywords"},
      {R"({"type": "number", "minimum": 1234567890.1234567})", ErrorCode::kUnsupported,
       "/minimum: bounds of more than 15 digits"},
      {R"({"type": "number", "minimum": 1e300})", ErrorCode::kUnsupported, "/minimum: its exponent is beyond 40"},
      {"", ErrorCode::kInvalidArgument, "schema: it is not JSON"},
      {"{", ErrorCode::kInvalidArgument, "schema: it is not JSON"},
      {"[]", ErrorCode::kInvalidArgument, "schema: a schema is an object, true or false"},
      {"1", ErrorCode::kInvalidArgument, "a schema is an object, true or false"},
      {R"({"type": "string", "type": "null"})", ErrorCode::kInvalidArgument, "key \"type\" stands twice in one object"},
      {R"({"properties": {"a": {"type": "text"}}})", ErrorCode::kInvalidArgument,
       "/properties/a/type: it must be null, boolean"},
      {R"({"type": []})", ErrorCode::kInvalidArgument, "/type: the list of types is empty"},
      {R"({"enum": []})", ErrorCode::kInvalidArgument, "/enum: it must be a list of at least one value"},
      {R"({"properties": []})", ErrorCode::kInvalidArgument, "/properties: it must be an object"},
      {R"({"required": "a"})", ErrorCode::kInvalidArgument, "/required: it must be a list of names"},
      {R"({"minLength": -1})", ErrorCode::kInvalidArgument, "/minLength: it must be a whole number"},
      {R"({"minItems": 1.5})", ErrorCode::kInvalidArgument, "/minItems: it must be a whole number"},
      {R"({"minimum": "1"})", ErrorCode::kInvalidArgument, "/minimum: it must be a number"},
      {R"({"anyOf": []})", ErrorCode::kInvalidArgument, "/anyOf: it must be a list of at least one schema"},
      {R"({"nullable": 1})", ErrorCode::kInvalidArgument, "/nullable: it must be true or false"},
      {"false", ErrorCode::kInvalidArgument, "schema: no value is valid against it"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", ErrorCode::kInvalidArgument, "no value is valid"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", ErrorCode::kInvalidArgument, "no value is valid"},
      {R"({"type": "string", "enum": [1]})", ErrorCode::kInvalidArgument, "no value is valid"},
      {R"({"properties": {"a": false}, "required": ["a"]})", ErrorCode::kInvalidArgument, "no value is valid"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", ErrorCode::kInvalidArgument, "no text can end it"},
  };
  for (const auto& c : cases) {
    const auto grammar = Grammar::from_json_schema(c.schema);
    ASSERT_FALSE(grammar.ok()) << c.schema;
    EXPECT_EQ(grammar.error().code(), c.code) << c.schema << "\n" << grammar.error().text();
    EXPECT_THAT(grammar.error().text(), HasSubstr(c.message)) << c.schema;
  }
}

}  // namespace
}  // namespace terrace::sampler
