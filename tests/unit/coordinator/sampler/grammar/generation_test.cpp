// Whole generations under a schema, with logits as a model that knows nothing would give them: they end by themselves,
// and what they wrote is valid by an independent validator (check_samples.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "common/gguf/file.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/sampler.h"
#include "coordinator/text/tokenizer.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::sampler {
namespace {

using nlohmann::ordered_json;

constexpr std::uint32_t kSeed = 20;
constexpr int kTextsPerSchema = 25;

struct Case {
  const char* schema;
  int max_tokens;  // more than the longest text has bytes: a token is at least one
};

// Every keyword that is held, in schemas whose texts have a longest one.
const Case kCases[] = {
    {R"({"type": "string", "maxLength": 12})", 200},
    {R"({"type": "string", "minLength": 3, "maxLength": 40})", 600},
    {R"({"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 2, "maxItems": 5})", 500},
    {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}, {"type": "string", "maxLength": 3}], "items": {"type": "null"}, "minItems": 1, "maxItems": 6})",
     300},
    {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false})", 100},
    {R"({"type": ["integer", "number", "null", "boolean"]})", 100},
    {R"({"type": "integer", "minimum": -17, "maximum": 4711})", 30},
    {R"({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001})", 30},
    {R"({"type": "integer", "minimum": -5.5, "exclusiveMaximum": 3.5})", 30},
    {R"({"type": "number", "minimum": -0.25, "maximum": 12.5})", 60},
    {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001})", 60},
    {R"({"type": "number", "minimum": 3.14})", 60},
    {R"({"type": "number", "exclusiveMaximum": -2.718})", 60},
    {R"({"enum": ["red", "green", "gr\u00fcn", 1, 2.5, null, {"a": [1, 2]}, "\"quoted\"\n"]})", 60},
    {R"({"const": {"k": "v", "list": [true, false]}})", 60},
    {R"({"type": "string", "format": "date"})", 40},
    {R"({"type": "string", "format": "time"})", 40},
    {R"({"type": "string", "format": "date-time"})", 60},
    {R"({"type": "string", "format": "uuid"})", 60},
    {R"({"type": "string", "pattern": "^[A-Z]{2,4}-\\d{1,6}(?:/(?:a|bb|[^\"\\x00-\\x1f]))?$"})", 60},
    {R"({"type": "string", "pattern": "^\\s?\\w{1,5}[\\n\\t\\\\\"]{0,3}$"})", 60},
    {R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}}, "required": ["name", "age"], "additionalProperties": false})",
     500},
    {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"type": "integer", "maximum": 9, "minimum": 0}, "d": {"const": "x"}}})",
     200},
    {R"({"type": "object", "properties": {"at": {"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}, "y": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["x", "y"]}}, "required": ["at"]})",
     300},
    {R"({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}]})",
     100},
    {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "r"]}, {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["kind", "w"]}]})",
     200},
    {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]}, {"properties": {"a": {"maximum": 50}, "b": {"type": "string", "maxLength": 5}}, "required": ["b"]}]})",
     200},
    {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
     100},
    {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"next": {"$ref": "#/$defs/b"}}, "required": ["next"]}, "b": {"type": "object", "properties": {"end": {"type": "string", "maxLength": 4}}, "required": ["end"]}}})",
     200},
    {R"({"required": ["x"], "properties": {"x": {"enum": [1, 2]}, "y": {"items": {"type": "null"}, "maxItems": 2}}, "title": "T", "description": "D", "default": {}, "examples": []})",
     200},
};

struct Model {
  std::vector<std::string> tokens;
  std::shared_ptr<const VocabularyTrie> trie;
};

// The vocabulary of the demo model: byte-level BPE with control tokens.
Model demo_model() {
  const auto file = gguf::File::open(test::demo_model());
  const auto tokenizer = text::Tokenizer::make(text::vocabulary_from_gguf(file.value()).value()).value();
  Model model;
  for (std::size_t id = 0; id < tokenizer.size(); ++id)
    model.tokens.emplace_back(tokenizer.bytes(static_cast<std::int32_t>(id), {.special = false}));
  const std::vector<std::string_view> views(model.tokens.begin(), model.tokens.end());
  model.trie = std::make_shared<const VocabularyTrie>(VocabularyTrie::make(views, tokenizer.stop_ids()).value());
  return model;
}

// The text of one generation; a failure of the test where it does not end within its bound.
std::string generate(const Model& model, const std::shared_ptr<const Grammar>& grammar, const Case& c,
                     std::mt19937& random) {
  Sampler sampler({.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .seed = random()},
                  model.tokens.size(), kernels::all_ops().front());
  GrammarState state(grammar, model.trie);
  std::vector<float> logits(model.tokens.size());
  std::string text;
  for (int n = 0; n < c.max_tokens; ++n) {
    for (float& logit : logits) logit = static_cast<float>(random() % 1024) * 0.01f - 5.0f;
    const auto mask = state.allowed_tokens();
    EXPECT_TRUE(mask.ok());
    const auto token = sampler.sample(logits, static_cast<std::uint64_t>(n), {}, *mask);
    EXPECT_TRUE(token.ok()) << c.schema << " after " << text << ": " << token.error().text();
    if (!token.ok() || !state.accept(*token).ok()) break;
    if (state.ended()) return text;
    text += model.tokens[static_cast<std::size_t>(*token)];
  }
  ADD_FAILURE() << c.schema << ", seed " << kSeed << ": no end after " << text;
  return text;
}

TEST(GrammarGeneration, UnderRandomLogits_EndsAndIsValid) {
  const Model model = demo_model();
  std::mt19937 random(kSeed);
  RecordProperty("seed", std::to_string(kSeed));
  ordered_json samples = ordered_json::array();
  for (const Case& c : kCases) {
    const auto grammar = Grammar::from_json_schema(c.schema);
    ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.error().text();
    ordered_json texts = ordered_json::array();
    for (int i = 0; i < kTextsPerSchema; ++i) {
      const std::string text = generate(model, *grammar, c, random);
      ASSERT_TRUE(ordered_json::accept(text)) << c.schema << ": " << text;
      texts.push_back(text);
    }
    samples.push_back({{"schema", ordered_json::parse(c.schema)}, {"texts", texts}});
  }

  const test::TempDir dir;
  std::ofstream(dir / "samples.json") << samples.dump();
  const auto here = test::source_dir() / "tests" / "unit" / "coordinator" / "sampler" / "grammar";
  const std::string command = "'" + (test::source_dir() / "tests" / "repository" / "with_venv.sh").string() + "' '" +
                              (here / "check_samples.py").string() + "' '" + (dir / "samples.json").string() + "'";
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "the Python package jsonschema is missing (tests/requirements.txt)";
  EXPECT_EQ(status, 0) << command;
}

}  // namespace
}  // namespace terrace::sampler
