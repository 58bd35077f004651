// Masks against the automaton followed byte by byte and token by token, by code that shares nothing with theirs.
#include "coordinator/sampler/grammar/token_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "coordinator/sampler/sampler.h"
#include "tests/unit/coordinator/sampler/grammar/matching.h"

namespace terrace::sampler::grammar {
namespace {

using ::testing::HasSubstr;

// The automaton as automaton.h describes it, with whole stacks.
class PlainAutomaton {
 public:
  explicit PlainAutomaton(const Automaton& automaton) : automaton_(automaton) {
    ends_ = reach({automaton.start(), 0, {}}, places_);
  }

  bool may_follow(std::string_view bytes) const {
    Places places = places_;
    bool ends = false;
    for (const char byte : bytes) {
      places = step(places, static_cast<std::uint8_t>(byte), ends);
      if (places.empty() && !ends) return false;
    }
    return true;
  }
  void accept(std::string_view bytes) {
    ends_ = false;
    for (const char byte : bytes) places_ = step(places_, static_cast<std::uint8_t>(byte), ends_);
  }
  bool may_end() const { return ends_; }

 private:
  struct Place {
    StateId state;
    std::uint32_t counter;
    std::vector<std::pair<StateId, std::uint32_t>> stack;
    auto operator<=>(const Place&) const = default;
  };
  using Places = std::set<Place>;

  Places step(const Places& from, std::uint8_t byte, bool& ends) const {
    Places places;
    ends = false;
    for (const Place& place : from)
      for (const Edge& edge : automaton_.edges(place.state))
        if (edge.kind == Edge::Kind::kBytes && edge.low <= byte && byte <= edge.high)
          ends |= reach({edge.target, place.counter, place.stack}, places);
    return places;
  }

  bool reach(const Place& place, Places& places) const {
    if (!places.insert(place).second) return false;
    bool ends = false;
    for (const Edge& edge : automaton_.edges(place.state)) {
      Place next = place;
      next.state = edge.target;
      switch (edge.kind) {
        case Edge::Kind::kBytes:
          continue;
        case Edge::Kind::kEpsilon:
          break;
        case Edge::Kind::kReset:
          next.counter = 0;
          break;
        case Edge::Kind::kCall:
          next.stack.emplace_back(edge.target, place.counter);
          [[fallthrough]];
        case Edge::Kind::kTailCall:
          next.state = edge.argument;
          next.counter = 0;
          break;
        case Edge::Kind::kReturn:
          if (place.stack.empty()) {
            ends = true;
            continue;
          }
          std::tie(next.state, next.counter) = next.stack.back();
          next.stack.pop_back();
          break;
        case Edge::Kind::kLoop: {
          const Loop& loop = automaton_.loop(edge.argument);
          if (place.counter < loop.max) ends |= reach(next, places);
          if (place.counter < loop.min) continue;
          next.state = loop.exit;
          next.counter = 0;
          break;
        }
        case Edge::Kind::kCount:
          next.counter = place.counter + 1;
          if (automaton_.loop(edge.argument).max == kUnlimited)
            next.counter = std::min(next.counter, automaton_.loop(edge.argument).min);
          break;
      }
      ends |= reach(next, places);
    }
    return ends;
  }

  const Automaton& automaton_;
  Places places_;
  bool ends_ = false;
};

const SmallVocabulary& vocabulary() {
  static const SmallVocabulary small({"ab",
                                      "abc",
                                      "abab",
                                      "aaaaaaaaaaaa",
                                      "aaaaaaaaaaaaaaaaaaaaaaaa",
                                      "\"",
                                      "\",",
                                      "\"}",
                                      "\": ",
                                      ", \"",
                                      "\"a\"",
                                      "\": \"",
                                      "\",\"",
                                      "]}",
                                      "]]",
                                      "}}",
                                      "}}}",
                                      "},{",
                                      "[{",
                                      "{\"",
                                      "[\"",
                                      "\\\"",
                                      "\\u",
                                      "\\ud8",
                                      "00",
                                      "123",
                                      "0.5",
                                      "1e",
                                      "e+",
                                      "true",
                                      "fals",
                                      "null",
                                      "nul",
                                      "\xc3\xa9",
                                      "\xc3",
                                      "\xa9\"",
                                      "\xe2\x82",
                                      "\xac\xac",
                                      "\xf0\x9f",
                                      "\x98\x80",
                                      "\xf0\x9f\x98\x80",
                                      "  ",
                                      "\n ",
                                      " \"",
                                      "\t",
                                      "xyz",
                                      "xyzxyzxyzxyzxyz",
                                      "((",
                                      "))",
                                      "()",
                                      "()()",
                                      "b b",
                                      "c\nd",
                                      "a\",\"b",
                                      "\"}]}",
                                      "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"});
  return small;
}

bool has(std::span<const std::uint64_t> mask, std::int32_t id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> id % 64 & 1) != 0;
}

const char* const kGrammars[] = {
    R"(root ::= ("a" | "b" | "abc")*)",
    R"(root ::= "a"{0,40} "b")",
    R"(root ::= ("a"{1,3} "b"?){2,5} "c")",
    R"(root ::= [a-z]{3,30} "\"" | "xyz"{2,})",
    R"_(root ::= p*
       p ::= "(" p* ")" | x{2,4}
       x ::= "a" | "b")_",
    R"(root ::= "{" pair ("," pair)* "}"
       pair ::= string ": " string
       string ::= "\"" char{0,9} "\""
       char ::= [^"\\\n] | "\\" ["\\u])",
    R"(root ::= (.{2} "\n"?)+)",
    R"(root ::= list
       list ::= "[" (list ("," list)*)? "]" | [0-9]{1,3})",
    R"(root ::= a b a b
       a ::= "a"*
       b ::= ("b" a)? )",
};
const char* const kSchemas[] = {
    R"({"type": "object"})",
    R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "ab": {"type": "integer"}, "abc": {"enum": ["ab", "abc", 123, null]}}, "required": ["ab"]})",
    R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 20}, "minItems": 1, "maxItems": 4})",
    R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["a"]}}})",
    R"({"type": ["number", "null", "boolean"]})",
    R"({"type": "object", "properties": {"a": {"type": "number", "minimum": -1.5, "maximum": 123.25}}, "additionalProperties": {"type": "boolean"}})",
};

void compare_walks(const std::shared_ptr<const Grammar>& grammar, std::uint32_t seed, const std::string& name) {
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    GrammarState state(grammar, vocabulary().trie);
    PlainAutomaton plain(grammar->automaton());
    std::string text;
    for (int length = 0; length < 25; ++length) {
      const auto mask = state.allowed_tokens();
      ASSERT_TRUE(mask.ok()) << mask.error().text();
      std::vector<std::int32_t> allowed;
      for (std::size_t id = 1; id < vocabulary().tokens.size(); ++id) {
        const std::string& token = vocabulary().tokens[id];
        const bool truth = !token.empty() && plain.may_follow(token);
        ASSERT_EQ(has(*mask, static_cast<std::int32_t>(id)), truth)
            << name << ", seed " << seed << ": token \"" << token << "\" after \"" << text << "\"";
        if (truth) allowed.push_back(static_cast<std::int32_t>(id));
      }
      ASSERT_EQ(has(*mask, 0), plain.may_end()) << name << ", after " << text;
      if (allowed.empty()) break;
      // Long tokens are rarer than bytes: half of the time one of them, where there is one.
      std::vector<std::int32_t> longer;
      for (const std::int32_t id : allowed)
        if (id >= 258) longer.push_back(id);
      const auto& from = longer.empty() || random() % 2 == 0 ? allowed : longer;
      const std::int32_t token = from[random() % from.size()];
      ASSERT_TRUE(state.accept(token).ok());
      plain.accept(vocabulary().tokens[static_cast<std::size_t>(token)]);
      text += vocabulary().tokens[static_cast<std::size_t>(token)];
    }
  }
}

TEST(TokenMasks, RandomWalks_AllowWhatTheAutomatonTakesByteByByte) {
  std::uint32_t seed = 1;
  for (const char* text : kGrammars) {
    const auto grammar = Grammar::from_gbnf(text);
    ASSERT_TRUE(grammar.ok()) << grammar.error().text();
    compare_walks(*grammar, seed++, text);
  }
  for (const char* text : kSchemas) {
    const auto grammar = Grammar::from_json_schema(text);
    ASSERT_TRUE(grammar.ok()) << grammar.error().text();
    compare_walks(*grammar, seed++, text);
  }
}

TEST(GrammarState, Tokens_AreAcceptedOrRefusedByName) {
  const auto grammar = Grammar::from_gbnf(R"(root ::= "ab" "c"?)").value();
  GrammarState state(grammar, vocabulary().trie);
  const auto refused = [&](std::int32_t token, const char* why) {
    const Status status = state.accept(token);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().text(), HasSubstr(why));
  };
  refused(0, "the text is not complete");
  refused(1, "a grammar allows no control token");
  refused(SmallVocabulary::of_byte('b'), "the grammar does not allow its text");
  refused(100'000, "beyond the vocabulary");
  refused(-1, "beyond the vocabulary");
  EXPECT_FALSE(state.may_end());
  ASSERT_TRUE(state.accept(SmallVocabulary::of_byte('a')).ok());
  ASSERT_TRUE(state.accept(SmallVocabulary::of_byte('b')).ok());
  EXPECT_TRUE(state.may_end());
  EXPECT_FALSE(state.must_end());
  EXPECT_TRUE(has(*state.allowed_tokens(), 0));
  EXPECT_TRUE(has(*state.allowed_tokens(), SmallVocabulary::of_byte('c')));
  ASSERT_TRUE(state.accept(SmallVocabulary::of_byte('c')).ok());
  EXPECT_TRUE(state.must_end());
  ASSERT_TRUE(state.accept(0).ok());
  EXPECT_TRUE(state.ended());
  refused(0, "the text has ended");
  const auto mask = state.allowed_tokens().value();
  for (const std::uint64_t word : mask) EXPECT_EQ(word, 0u);
}

TEST(GrammarState, EndAndControlTokens_AreNotAllowedByTheirText) {
  const std::vector<std::string_view> tokens = {"x", "</s>", ""};
  const std::vector<std::int32_t> ends = {1};
  const auto trie = std::make_shared<const VocabularyTrie>(VocabularyTrie::make(tokens, ends).value());
  GrammarState state(Grammar::from_gbnf(R"(root ::= "x"{1,2} "</s>"?)").value(), trie);
  EXPECT_EQ(state.allowed_tokens().value()[0], 1u);
  ASSERT_TRUE(state.accept(0).ok());
  EXPECT_EQ(state.allowed_tokens().value()[0], 0b11u);
}

TEST(GrammarState, TokensWithEqualText_AreAllowedTogether) {
  const std::vector<std::string_view> tokens = {"b", "a", "a", "ab", "a"};
  const auto trie = std::make_shared<const VocabularyTrie>(VocabularyTrie::make(tokens, {}).value());
  GrammarState state(Grammar::from_gbnf(R"(root ::= "a" "c")").value(), trie);
  EXPECT_EQ(state.allowed_tokens().value()[0], 0b10110u);
  ASSERT_TRUE(state.accept(4).ok());
  EXPECT_EQ(state.allowed_tokens().value()[0], 0u);  // there is no token for c
}

TEST(GrammarState, WhatItMustForget_IsFoundAgain) {
  // Every count is a place of its own, so that what is kept passes its bound several times.
  const auto grammar = Grammar::from_gbnf(R"(root ::= ("a" | "b"){90000} "c")").value();
  GrammarState state(grammar, vocabulary().trie);
  for (int i = 0; i < 90'000; ++i) ASSERT_TRUE(state.accept(SmallVocabulary::of_byte("ab"[i % 2])).ok()) << i;
  EXPECT_TRUE(has(*state.allowed_tokens(), SmallVocabulary::of_byte('c')));
  EXPECT_FALSE(has(*state.allowed_tokens(), SmallVocabulary::of_byte('b')));
  ASSERT_TRUE(state.accept(SmallVocabulary::of_byte('c')).ok());
  EXPECT_TRUE(state.must_end());
}

}  // namespace
}  // namespace terrace::sampler::grammar
