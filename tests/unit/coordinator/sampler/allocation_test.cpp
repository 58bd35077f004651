// Counts every allocation of this program, to hold sampler.h and grammar.h to their word.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/sampler.h"
#include "tests/unit/count_allocations.h"

namespace terrace::sampler {
namespace {

TEST(Sampler, AfterConstruction_NothingIsAllocated) {
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  const std::vector<std::int32_t> history = {1, 2, 3, 2};
  const SamplingOptions cases[] = {{},
                                   {.presence_penalty = 0.5f},
                                   {.temperature = 0.8f},
                                   {.temperature = 0.8f, .repeat_penalty = 1.1f, .repeat_last_n = -1},
                                   {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f},
                                   {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.1f}};
  const std::vector<std::uint64_t> mask((logits.size() + 63) / 64, 0x5555);
  for (const SamplingOptions& options : cases) {
    Sampler sampler(options, logits.size(), kernels::all_ops().front(), {{.token = 2, .bias = 1.5f}});
    const std::size_t before = test::allocations();
    for (std::uint64_t index = 0; index < 5; ++index) {
      ASSERT_TRUE(sampler.sample(logits, index, history).ok());
      ASSERT_TRUE(sampler.sample(logits, index, history, mask).ok());
    }
    EXPECT_EQ(test::allocations() - before, 0u);
  }
  EXPECT_GT(test::allocations(), 0u);  // the counter counts
}

// Once each place has been seen, a stream in a string costs no memory, wherever the string stands.
TEST(GrammarState, AtPlacesSeenBefore_NothingIsAllocated) {
  std::vector<std::string> texts = {"</s>"};
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* longer : {"word", "\",\"", " two", "\"}", "{\"", "\":\"", "e\""}) texts.emplace_back(longer);
  const std::vector<std::string_view> tokens(texts.begin(), texts.end());
  const auto trie =
      std::make_shared<const VocabularyTrie>(VocabularyTrie::make(tokens, std::vector<std::int32_t>{0}).value());
  GrammarState state(Grammar::json_object(), trie);
  const auto take = [&](std::string_view text) {
    ASSERT_TRUE(state.allowed_tokens().ok());
    const auto token = std::ranges::find(tokens, text) - tokens.begin();
    ASSERT_TRUE(state.accept(static_cast<std::int32_t>(token)).ok()) << text;
  };
  const auto member = [&] {
    for (const char* text : {"word", " two", "\":\"", "word", "word", " two", "e\"", ",", "\""}) take(text);
  };
  take("{\"");
  member();
  member();
  const std::size_t before = test::allocations();
  for (int i = 0; i < 20; ++i) member();
  EXPECT_EQ(test::allocations() - before, 0u);
  take("\":\"");
  take("\"}");
  EXPECT_TRUE(state.must_end());
}

}  // namespace
}  // namespace terrace::sampler
