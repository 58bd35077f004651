#include "coordinator/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/coordinator/text/small_vocabulary.h"

namespace terrace::text {
namespace tokenizer_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<std::int32_t>;

Tokenizer made(const std::function<void(Vocabulary&)>& change = [](Vocabulary&) {}) {
  Vocabulary v = test::small_vocabulary();
  change(v);
  return Tokenizer::make(std::move(v)).value();
}

Error refused(const std::function<void(Vocabulary&)>& change) {
  Vocabulary v = test::small_vocabulary();
  change(v);
  const auto result = Tokenizer::make(std::move(v));
  return result.ok() ? Error(ErrorCode::kInternal, "it was accepted") : result.error();
}

Ids encode(const Tokenizer& t, std::string_view text, bool parse_special = false) {
  return t.encode(text, {.parse_special = parse_special}).value();
}

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Tokenizer, SpecialTokens_FoundByTypeAndOption) {
  const Tokenizer t = made();
  EXPECT_EQ(encode(t, "hello<tool>hello"), Ids({259, 262, 259}));
  EXPECT_EQ(encode(t, "<|end|>", true), Ids({260}));
  EXPECT_EQ(encode(t, "<unk>", true), Ids({263}));
  EXPECT_EQ(encode(t, "<|end|>"), bytes_of("<|end|>"));
  EXPECT_EQ(encode(t, "<unk>"), bytes_of("<unk>"));
}

// Ranges [begin, end) in which control tokens are plain text.
TEST(Tokenizer, PlainRanges_KeepTheirMarksAsText) {
  const Tokenizer t = made();
  const auto with = [&](std::string_view text, std::vector<TextRange> plain) {
    return t.encode(text, {.parse_special = true, .plain = plain}).value();
  };
  const auto joined = [](Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(with("<|end|><|end|>", {{7, 14}}), joined({260}, bytes_of("<|end|>")));
  EXPECT_EQ(with("<|end|><|end|>", {{0, 7}}), joined(bytes_of("<|end|>"), {260}));
  EXPECT_EQ(with("<|end|><|end|>", {{0, 14}}), bytes_of("<|end|><|end|>"));
  EXPECT_EQ(with("<|end|>", {{3, 4}}), bytes_of("<|end|>")) << "a mark across a border is none";
  EXPECT_EQ(with("<tool>", {{0, 6}}), Ids({262})) << "user-defined tokens are found everywhere";
  EXPECT_EQ(with("hello", {{2, 3}}), Ids({259})) << "a border cuts no normal token";
  EXPECT_EQ(with("<|end|>", {{0, 0}, {7, 7}}), Ids({260}));
}

TEST(Tokenizer, Decode_JoinsBytesAndNamesABadId) {
  const Tokenizer t = made();
  EXPECT_EQ(t.decode(Ids({259, 32, 0xFF, 261, 262}), {}).value(), "hello \xFF<|endoftext|><tool>");
  EXPECT_EQ(t.decode(Ids({259, 261, 263, 262}), {.special = false}).value(), "hello<tool>");
  for (const std::int32_t id : {-1, 264}) {
    const auto bad = t.decode(Ids({id}), {});
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(bad.error().text(), AllOf(HasSubstr(std::to_string(id)), HasSubstr("263")));
  }
}

TEST(Tokenizer, BadByteWithoutToken_ReplacesAllBadBytes) {
  const auto without_ff = [](Vocabulary& v) { v.tokens[0xFF] = "hehe"; };
  EXPECT_EQ(encode(made(without_ff), "a\x80"), Ids({'a', 0x80}));
  EXPECT_EQ(encode(made(without_ff), "a\x80\xFF"), bytes_of("a\uFFFD\uFFFD"));
  EXPECT_THAT(made(without_ff).notes(), IsEmpty());  // 0xFF is never part of UTF-8
}

TEST(Tokenizer, StopSet_IsIdsAndKnownTexts) {
  EXPECT_THAT(made().stop_ids(), ElementsAre(260, 261));
  EXPECT_THAT(made([](Vocabulary& v) {
                v.eos = 1, v.eot = 2, v.eom = 3, v.fim_pad = 4, v.fim_rep = 5, v.fim_sep = 6;
              }).stop_ids(),
              ElementsAre(1, 2, 3, 4, 5, 6, 260, 261));
  const Tokenizer t = made([](Vocabulary& v) { v.tokens[262] = "<|return|>", v.tokens[263] = "<|call|>"; });
  EXPECT_THAT(t.stop_ids(), ElementsAre(261, 262, 263));  // <|end|> only closes a message there
  EXPECT_TRUE(t.is_stop(262));
  EXPECT_FALSE(t.is_stop(260));
}

TEST(Tokenizer, Bos_WhereTheFileAsksForItAndHasIt) {
  EXPECT_EQ(made([](Vocabulary& v) { v.bos = 7; }).leading_bos(), std::nullopt);
  EXPECT_EQ(made([](Vocabulary& v) { v.bos = 7, v.add_bos = true; }).leading_bos(), 7);
  EXPECT_EQ(made([](Vocabulary& v) { v.bos = 7, v.add_bos = false; }).leading_bos(), std::nullopt);
  const Tokenizer t = made([](Vocabulary& v) { v.add_bos = true; });
  EXPECT_EQ(t.leading_bos(), std::nullopt);
  EXPECT_THAT(t.notes(), ElementsAre(HasSubstr("tokenizer.ggml.bos_token_id")));
  EXPECT_EQ(made([](Vocabulary& v) { v.eos = 8, v.add_eos = true; }).trailing_eos(), 8);
}

TEST(Tokenizer, UnknownPre_IsRefusedWithTheKnownOnes) {
  const Error error = refused([](Vocabulary& v) { v.pre = "wombat"; });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.text(), AllOf(HasSubstr("wombat"), HasSubstr("gpt-2"), HasSubstr("default"), HasSubstr("qwen2"),
                                  HasSubstr("stablelm2")));
}

TEST(Tokenizer, MissingPre_IsDefaultWithANote) {
  const Tokenizer t = made([](Vocabulary& v) { v.pre.reset(); });
  EXPECT_THAT(t.notes(), ElementsAre(AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("default"))));
}

TEST(Tokenizer, ContradictingVocabularies_AreRefusedByKey) {
  const struct {
    std::function<void(Vocabulary&)> change;
    ErrorCode code;
    std::vector<std::string> says;
  } cases[] = {
      {[](Vocabulary& v) { v.model = "llama"; }, ErrorCode::kUnsupported, {"tokenizer.ggml.model", "llama", "gpt2"}},
      {[](Vocabulary& v) { v.tokens.clear(); }, ErrorCode::kCorrupt, {"tokenizer.ggml.tokens", "0"}},
      {[](Vocabulary& v) { v.types.pop_back(); }, ErrorCode::kCorrupt, {"token_type", "263", "264"}},
      {[](Vocabulary& v) { v.types[9] = 7; },
       ErrorCode::kCorrupt,
       {"key tokenizer.ggml.token_type: entry 9 is 7", "1 to 6"}},
      {[](Vocabulary& v) { v.types[0] = 0; }, ErrorCode::kCorrupt, {"key tokenizer.ggml.token_type: entry 0 is 0"}},
      {[](Vocabulary& v) { v.bos = 264; }, ErrorCode::kCorrupt, {"tokenizer.ggml.bos_token_id is 264", "263"}},
      {[](Vocabulary& v) { v.fim_sep = ~0u; }, ErrorCode::kCorrupt, {"fim_sep_token_id is 4294967295"}},
      {[](Vocabulary& v) { v.merges[1] = "ll"; },
       ErrorCode::kCorrupt,
       {"key tokenizer.ggml.merges: entry 1", "\"ll\""}},
      {[](Vocabulary& v) { v.merges[1] = ""; }, ErrorCode::kCorrupt, {"key tokenizer.ggml.merges: entry 1"}},
      {[](Vocabulary& v) { v.merges[1] = "l l l"; }, ErrorCode::kCorrupt, {"key tokenizer.ggml.merges: entry 1"}},
      {[](Vocabulary& v) { v.merges[1] = " l"; }, ErrorCode::kCorrupt, {"key tokenizer.ggml.merges: entry 1"}},
      {[](Vocabulary& v) { v.merges[1] = "l "; }, ErrorCode::kCorrupt, {"key tokenizer.ggml.merges: entry 1"}},
  };
  for (const auto& c : cases) {
    const Error error = refused(c.change);
    EXPECT_EQ(error.code(), c.code) << error.text();
    for (const std::string& word : c.says) EXPECT_THAT(error.text(), HasSubstr(word));
  }
}

TEST(Tokenizer, OddVocabularies_AreUsedWithANote) {
  const Tokenizer twice = made([](Vocabulary& v) { v.tokens[257] = "he"; });
  EXPECT_THAT(twice.notes(), testing::Contains(HasSubstr("257 \"he\"")));
  EXPECT_EQ(encode(twice, "he"), Ids({256}));
  EXPECT_EQ(twice.decode(Ids({257}), {}).value(), "he");

  const Tokenizer foreign = made([](Vocabulary& v) { v.tokens[256] = "中"; });
  EXPECT_THAT(foreign.notes(), testing::Contains(HasSubstr("256 \"中\"")));
  EXPECT_EQ(foreign.decode(Ids({256}), {}).value(), "中");
  EXPECT_EQ(encode(foreign, "中he"), bytes_of("中he"));  // never produced, and the merges to it are left out

  const Tokenizer missing = made([](Vocabulary& v) { v.tokens['z'] = "qqz"; });
  EXPECT_THAT(missing.notes(), ElementsAre(HasSubstr("0x7A")));
  EXPECT_EQ(encode(missing, "azb"), Ids({'a', 'b'}));

  const Tokenizer merge = made([](Vocabulary& v) { v.merges.emplace_back("q z"); });
  EXPECT_THAT(merge.notes(), ElementsAre(HasSubstr("4 \"q z\"")));

  EXPECT_THAT(made([](Vocabulary& v) { v.types.clear(); }).notes(), ElementsAre(HasSubstr("token_type")));
}

// Plain text must not turn into a control token by merging, whatever a file says.
TEST(Tokenizer, MergeToAControlToken_IsLeftOut) {
  const Tokenizer t = made([](Vocabulary& v) { v.types[259] = 3; });
  EXPECT_EQ(encode(t, "hello"), Ids({258, 'o'}));
  EXPECT_EQ(encode(t, "hello", true), Ids({259}));
}

TEST(Tokenizer, SpecialThatIsNotUtf8_NeverCutsACharacter) {
  const Tokenizer t = made([](Vocabulary& v) { v.tokens[262] = "\xC3"; });
  EXPECT_EQ(encode(t, "é"), bytes_of("é"));
  EXPECT_EQ(t.decode(Ids({262}), {}).value(), "\xC3");
}

TEST(Tokenizer, MegabyteWithoutASpace_IsEncoded) {
  const Tokenizer t = made();
  std::string text;
  while (text.size() < std::size_t{1} << 20) text += "hello";
  EXPECT_EQ(encode(t, text), Ids(text.size() / 5, 259));
  EXPECT_EQ(encode(t, std::string(std::size_t{1} << 20, '<')).size(), std::size_t{1} << 20);
}

TEST(Tokenizer, TextLongerThanAllowed_IsRefused) {
  const auto result = made().encode(std::string_view("", Tokenizer::kMaxTextBytes + 1), {});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().text(), HasSubstr("1073741825"));
}

}  // namespace tokenizer_test
}  // namespace terrace::text
