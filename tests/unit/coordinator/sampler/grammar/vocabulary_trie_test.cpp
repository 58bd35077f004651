#include "coordinator/sampler/grammar/vocabulary_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace terrace::sampler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Every token of the tries, by its text as the nodes spell it.
std::map<std::string, std::int32_t> spelled(const VocabularyTrie& trie) {
  std::map<std::string, std::int32_t> found;
  for (const VocabularyTrie::Part& part : trie.parts()) {
    std::string prefix;
    std::vector<std::uint32_t> ends;
    for (std::uint32_t i = 0; i < part.nodes.size(); ++i) {
      for (; !ends.empty() && ends.back() <= i; ends.pop_back()) prefix.pop_back();
      prefix += static_cast<char>(part.nodes[i].byte);
      ends.push_back(part.nodes[i].end);
      if (part.nodes[i].token != VocabularyTrie::kNoToken) found[prefix] = part.nodes[i].token;
      EXPECT_LE(prefix.size(), part.max_bytes);
    }
  }
  return found;
}

TEST(VocabularyTrie, Tokens_AreSpelledByTheirNodes) {
  const std::string long_text(300, 'a');
  const std::vector<std::string_view> tokens = {"a",  "ab",   "",        "abc",        "b",
                                                "ab", "</s>", long_text, "abcdefghij", "\xff"};
  const std::vector<std::int32_t> ends = {6};
  const auto trie = VocabularyTrie::make(tokens, ends).value();
  EXPECT_THAT(spelled(trie), ElementsAre(Pair("a", 0), Pair(long_text, 7), Pair("ab", 1), Pair("abc", 3),
                                         Pair("abcdefghij", 8), Pair("b", 4), Pair("\xff", 9)));
  EXPECT_THAT(trie.duplicates(), ElementsAre(Pair(1, 5)));
  EXPECT_EQ(trie.vocab_size(), tokens.size());
  EXPECT_EQ(trie.bytes(3), "abc");
  EXPECT_EQ(trie.bytes(6), "");  // an end token has no text here
  EXPECT_TRUE(trie.is_end_token(6));
  EXPECT_FALSE(trie.is_end_token(0));
}

TEST(VocabularyTrie, TooLongTokens_AreNeverAllowed) {
  const std::string text(VocabularyTrie::kMaxTokenBytes + 1, 'a');
  const std::vector<std::string_view> tokens = {"a", text};
  const auto trie = VocabularyTrie::make(tokens, {}).value();
  EXPECT_THAT(spelled(trie), ElementsAre(Pair("a", 0)));
  EXPECT_EQ(trie.bytes(1), "");
}

TEST(VocabularyTrie, WrongVocabularies_AreRefused) {
  EXPECT_FALSE(VocabularyTrie::make({}, {}).ok());
  const std::vector<std::string_view> tokens = {"a"};
  const std::vector<std::int32_t> ends = {1};
  const auto beyond = VocabularyTrie::make(tokens, ends);
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().text(), HasSubstr("end token 1 is beyond the vocabulary of 1 tokens"));
}

}  // namespace
}  // namespace terrace::sampler
