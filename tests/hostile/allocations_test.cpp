// Bug classes about work: what a file only claims costs nothing, what it holds is looked at in place. Counted, not
// timed.
#include "common/gguf/bytes.h"
#include "tests/hostile/support/bug_class.h"
#include "tests/unit/count_allocations.h"

namespace terrace::test {
namespace {

using raw::number;

class GgufBugClass : public BugClassFiles {};

// Of reading these bytes; `opened`: whether they could be.
std::size_t allocations_of_parsing(const std::string& bytes, bool opened) {
  const std::size_t before = allocations();
  const auto shard = gguf::parse_shard(gguf::as_bytes(bytes));
  const std::size_t after = allocations();
  EXPECT_EQ(shard.ok(), opened) << (shard.ok() ? "" : shard.error().text());
  return after - before;
}

TEST_F(GgufBugClass, C06_HugeCountsInATinyFile_TakeNoMemoryForThem) {
  const std::uint64_t counts[] = {std::uint64_t{1} << 29, std::uint64_t{1} << 40, ~std::uint64_t{0}};
  for (const std::uint64_t count : counts) {
    RawGguf tensors, keys, list, words, text;
    tensors.n_tensors = count;
    keys.n_keys = count;
    list.set("test.list", raw::kArray, raw::array(raw::kU32, {}, count));
    words.set("test.words", raw::kArray, raw::array(raw::kString, {}, count));
    text.set("test.text", raw::kString, number(count));
    for (const RawGguf* raw : {&tensors, &keys, &list, &words, &text}) {
      const std::string bytes = raw->bytes();
      ASSERT_LT(bytes.size(), 160u);
      // A sentence, a key or two; each of these is a single call for more than the machine has where it is believed.
      EXPECT_LT(allocations_of_parsing(bytes, false), 40u) << raw->bytes().size();
    }
  }
}

TEST_F(GgufBugClass, C25_BigVocabulary_IsReadInPlaceAtNoCostAnElement) {
  const auto with_tokens = [](std::size_t n) {
    RawGguf raw = RawGguf::base();
    std::vector<std::string> tokens, types;
    for (std::size_t i = 0; i < n; ++i) {
      tokens.push_back(raw::text("a token of more than fifteen bytes, number " + std::to_string(i)));
      types.push_back(number(std::int32_t{1}));
    }
    raw.set("tokenizer.ggml.tokens", raw::kArray, raw::array(raw::kString, tokens));
    raw.set("tokenizer.ggml.merges", raw::kArray, raw::array(raw::kString, tokens));
    raw.set("tokenizer.ggml.token_type", raw::kArray, raw::array(raw::kI32, types));
    return raw.bytes();
  };
  const std::size_t few = allocations_of_parsing(with_tokens(300), true);
  EXPECT_EQ(allocations_of_parsing(with_tokens(250'000), true), few);
}

}  // namespace
}  // namespace terrace::test
