// Streams of one grammar share what they find of it: each has the masks that it has alone.
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/sampler/grammar/follower.h"
#include "coordinator/sampler/grammar/grammar_cache.h"
#include "tests/unit/coordinator/sampler/grammar/matching.h"

namespace terrace::sampler::grammar {
namespace {

constexpr const char* kNamedNumber =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"}},)"
    R"( "required": ["name"], "additionalProperties": false})";

const SmallVocabulary& letters_and_keys() {
  static const SmallVocabulary made({"{\"", "name", "\":\"", "\":", "ab", "\",\"", "n\":", "12", "\"}"});
  return made;
}

using TokenMask = std::vector<std::uint64_t>;

bool allows(std::span<const std::uint64_t> mask, std::int32_t token) {
  return (mask[static_cast<std::size_t>(token) / 64] >> token % 64 & 1) != 0;
}

// The masks of a text of random tokens, up to its end or 40 of them.
std::vector<TokenMask> walk_of(GrammarState& state, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenMask> masks;
  for (int i = 0; i < 40 && !state.must_end(); ++i) {
    const auto mask = state.allowed_tokens().value();
    masks.emplace_back(mask.begin(), mask.end());
    std::vector<std::int32_t> allowed;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(letters_and_keys().trie->vocab_size()); ++id)
      if (allows(mask, id) && !letters_and_keys().trie->is_end_token(id)) allowed.push_back(id);
    if (allowed.empty()) break;
    EXPECT_TRUE(state.accept(allowed[random() % allowed.size()]).ok());
  }
  return masks;
}

std::vector<TokenMask> walk_alone(std::uint64_t seed) {
  GrammarState state(Grammar::from_json_schema(kNamedNumber).value(), letters_and_keys().trie);
  return walk_of(state, seed);
}

TEST(SharedGrammar, StreamsInTurn_HaveTheMasksThatTheyHaveAlone) {
  const auto grammar = Grammar::from_json_schema(kNamedNumber).value();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    GrammarState state(grammar, letters_and_keys().trie);
    EXPECT_EQ(walk_of(state, seed), walk_alone(seed)) << "seed " << seed;
  }
}

TEST(SharedGrammar, StreamsAtTheSameTime_HaveTheMasksThatTheyHaveAlone) {
  const auto grammar = Grammar::from_json_schema(kNamedNumber).value();
  std::vector<std::vector<TokenMask>> masks(16);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 4; ++i) {
          const std::size_t seed = static_cast<std::size_t>(t) * 4 + i;
          GrammarState state(grammar, letters_and_keys().trie);
          masks[seed] = walk_of(state, seed);
        }
      });
  }
  for (std::size_t seed = 0; seed < masks.size(); ++seed) EXPECT_EQ(masks[seed], walk_alone(seed)) << "seed " << seed;
}

TEST(SharedGrammar, OneFollowerForAllStreamsOfAVocabulary) {
  const auto grammar = Grammar::from_json_schema(kNamedNumber).value();
  const auto first = grammar->follower(letters_and_keys().trie);
  EXPECT_EQ(grammar->follower(letters_and_keys().trie), first);
  const SmallVocabulary other({"{\""});
  EXPECT_NE(grammar->follower(other.trie), first);
  EXPECT_EQ(grammar->follower(letters_and_keys().trie), first) << "the first one stays";
}

// A stream for which the limits are too narrow ends by itself: those beside it go on as if it were not there.
TEST(SharedGrammar, StreamThatIsTooAmbiguous_EndsAlone) {
  const auto grammar = Grammar::from_gbnf(R"(root ::= "b" [c-z]* | (("a"{1,1000}){1,1000}){1,1000})").value();
  const SmallVocabulary letters({"aaaaaaaa", "bc"});
  GrammarState plain(grammar, letters.trie);
  GrammarState ambiguous(grammar, letters.trie);
  ASSERT_TRUE(plain.accept(259).ok());
  Status status;
  for (int i = 0; i < 5'000 && status.ok(); ++i) {
    const auto mask = ambiguous.allowed_tokens();
    status = mask.ok() ? ambiguous.accept(258) : Status(mask.error());
  }
  ASSERT_FALSE(status.ok());
  const auto mask = plain.allowed_tokens();
  ASSERT_TRUE(mask.ok()) << mask.error().text();
  EXPECT_TRUE(allows(*mask, SmallVocabulary::of_byte('d')));
  EXPECT_FALSE(allows(*mask, SmallVocabulary::of_byte('a')));
  EXPECT_TRUE(plain.accept(SmallVocabulary::of_byte('d')).ok());
}

TEST(GrammarCache, EqualTexts_AreOneGrammar) {
  GrammarCache cache;
  const auto first = cache.from_gbnf("root ::= \"a\"").value();
  EXPECT_EQ(cache.from_gbnf("root ::= \"a\"").value(), first);
  EXPECT_NE(cache.from_gbnf("root ::= \"b\"").value(), first);
  EXPECT_NE(cache.from_json_schema("{}").value(), cache.from_json_schema("true").value());
}

TEST(GrammarCache, LeastRecentlyUsed_Leaves) {
  GrammarCache cache;
  const auto text = [](std::size_t i) { return "root ::= \"" + std::to_string(i) + "\""; };
  const auto kept = cache.from_gbnf(text(0)).value();
  const std::weak_ptr<const Grammar> left = cache.from_gbnf(text(1)).value();
  for (std::size_t i = 2; i <= GrammarCache::kMaxGrammars; ++i) {
    ASSERT_TRUE(cache.from_gbnf(text(i)).ok());
    EXPECT_EQ(cache.from_gbnf(text(0)).value(), kept);
  }
  EXPECT_TRUE(left.expired());
}

TEST(GrammarCache, Errors_AreNotKept) {
  GrammarCache cache;
  EXPECT_FALSE(cache.from_gbnf("root ::= undefined").ok());
  EXPECT_FALSE(cache.from_json_schema("{").ok());
  EXPECT_FALSE(cache.from_json_schema("{").ok());
}

}  // namespace
}  // namespace terrace::sampler::grammar
