// Hostile grammars: each is refused by name or followed, in bounded time and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/sampler/grammar/matching.h"

namespace terrace::sampler::grammar {
namespace {

using ::testing::HasSubstr;

std::string times(std::string_view text, std::size_t n) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += text;
  return all;
}

template <class T>
void expect_error(const Result<T>& result, ErrorCode code, const char* part) {
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.error().code(), code) << result.error().text();
  EXPECT_THAT(result.error().text(), HasSubstr(part));
}

TEST(GrammarLimits, HostileGrammars_AreRefusedByName) {
  const auto refused = [](const std::string& text, const char* part) {
    expect_error(Grammar::from_gbnf(text), ErrorCode::kInvalidArgument, part);
  };
  refused("root ::= " + times("(", 1'000'000), "groups are nested deeper than 64");
  refused("root ::= \"" + times("a", 1'100'000) + "\"", "allowed are 1048576");
  refused("root ::= " + times("\"a\" ", 200'000), "there are more than 100000 elements");
  refused("root ::= \"" + times("a", 500'000) + "\"", "the grammar needs more than 400000 states");
  refused(
      "root ::= r0\n" +
          [] {
            std::string rules;
            for (int i = 0; i < 20'000; ++i) rules += "r" + std::to_string(i) + " ::= \"a\"\n";
            return rules;
          }(),
      "there are more than 10000 rules");
  refused("root ::= ((((x?){64}){64}){64}){64}\nx ::= \"a\"", "states");
  refused("root ::= (x?){65}\nx ::= \"a\"", "something that may be empty is repeated up to 65 times; allowed is 64");
}

TEST(GrammarLimits, CallsTooDeepForTheFirstCharacter_AreAnErrorOfTheGrammar) {
  std::string text = "root ::= r0\n";
  for (int i = 0; i < 600; ++i) text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"b\"\n";
  expect_error(Grammar::from_gbnf(text + "r600 ::= \"a\""), ErrorCode::kInvalidArgument,
               "call each other deeper than 512 before the first character");
}

TEST(GrammarLimits, RulesThatDoubleEachOther_StayShort) {
  std::string text = "root ::= r0*\n";
  for (int i = 0; i < 60; ++i)
    text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "?\n";
  text += "r60 ::= \"a\"\n";
  const auto grammar = Grammar::from_gbnf(text);
  ASSERT_TRUE(grammar.ok()) << grammar.error().text();
  EXPECT_LT((*grammar)->automaton().n_states(), 200'000u);
  EXPECT_TRUE(takes(**grammar, "a"));
}

// More readings of one text than can be followed.
TEST(GrammarLimits, TooAmbiguousTexts_AreAnErrorAndNotAWait) {
  const SmallVocabulary vocabulary({"aaaaaaaa"});
  for (const char* text :
       {R"(root ::= (("a"{1,1000}){1,1000}){1,1000})", R"(root ::= (("a"? "a"?){64} "a" | "a"{1,5000}){1,5000})"}) {
    GrammarState state(Grammar::from_gbnf(text).value(), vocabulary.trie);
    Status status;
    for (int i = 0; i < 5'000 && status.ok(); ++i) {
      const auto mask = state.allowed_tokens();
      status = mask.ok() ? state.accept(258) : Status(mask.error());
    }
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(status.error().text(), HasSubstr("too ambiguous"));
  }
}

TEST(GrammarLimits, TooManyWaysToBegin_IsAnErrorOfTheGrammar) {
  std::string text = "root ::= ";
  for (int i = 0; i < 3'000; ++i) text += "[a-z]* \"" + std::to_string(i) + "\" | ";
  expect_error(Grammar::from_gbnf(text + "\"\""), ErrorCode::kOutOfMemory,
               "more than 2048 ways to read the text so far");
}

TEST(GrammarLimits, NestingInATextBeyondTheStack_IsNotAllowed) {
  const auto grammar = Grammar::from_gbnf("root ::= \"[\" root? \"]\" \"!\"?").value();
  std::string text;
  while (text.size() < 2'000 && match(*grammar, text + "[") != Match::kNo) text += "[";
  EXPECT_GT(text.size(), 100u);
  EXPECT_LT(text.size(), 2'000u);
  EXPECT_TRUE(takes(*grammar, text + times("]", text.size())));
}

TEST(GrammarLimits, HugeEnum_IsOnePlaceAtATime) {
  std::string schema = R"({"enum": [)";
  for (int i = 0; i < 20'000; ++i) schema += (i == 0 ? "\"" : ",\"") + std::to_string(i * 7919 % 1'000'003) + "\"";
  const auto grammar = Grammar::from_json_schema(schema + "]}");
  ASSERT_TRUE(grammar.ok()) << grammar.error().text();
  EXPECT_TRUE(takes(**grammar, "\"7919\""));
  EXPECT_FALSE(takes(**grammar, "\"7918\""));
}

TEST(GrammarLimits, HostileSchemas_AreRefusedByName) {
  const auto refused = [](const std::string& text, const char* part) {
    expect_error(Grammar::from_json_schema(text), ErrorCode::kInvalidArgument, part);
  };
  refused(times("{\"items\":", 100'000), "nested deeper than 256");
  refused(times("{\"items\":", 100) + "true" + times("}", 100), "schemas are nested deeper than 64");
  refused("{\"const\": \"" + times("a", 1'100'000) + "\"}", "allowed are 1048576");
  refused(R"({"anyOf": [)" + times("true,", 30'000) + "true]}", "there are more than 20000 schemas");
  refused(R"({"type": "string", "maxLength": 1000000})", "/maxLength: it is 1000000; allowed is at most 100000");
  refused(R"({"$ref": "#"})", "no text can end it");
  refused(R"({"allOf": [{"$ref": "#"}, {"type": "string"}]})", "lead into each other more than 32 times");
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 12; ++i) product += R"({"anyOf": [{"minLength": 1}, {"minLength": 2}]},)";
  refused(product + "{}]}", "more than 512 branches");
  // Each definition uses the next one twice.
  std::string doubling = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 50; ++i) {
    const std::string next = R"({"$ref": "#/$defs/)" + std::to_string(i + 1) + R"("})";
    doubling += "\"" + std::to_string(i) + R"(": {"allOf": [)" + next + "," + next + "]},";
  }
  refused(doubling + R"("50": {"type": "string"}}})", "lead into each other more than 32 times");
}

TEST(GrammarLimits, DefinitionsThatDoubleEachOther_StayShort) {
  std::string schema = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 50; ++i) {
    const std::string next = R"({"$ref": "#/$defs/)" + std::to_string(i + 1) + R"("})";
    schema += "\"" + std::to_string(i) + R"(": {"properties": {"a": )" + next + R"(, "b": )" + next + "}},";
  }
  const auto grammar = Grammar::from_json_schema(schema + R"("50": {"type": "null"}}})");
  ASSERT_TRUE(grammar.ok()) << grammar.error().text();
  EXPECT_LT((*grammar)->automaton().n_states(), 10'000u);
  EXPECT_TRUE(takes(**grammar, R"({"a":{"b":{}}})"));
}

}  // namespace
}  // namespace terrace::sampler::grammar
