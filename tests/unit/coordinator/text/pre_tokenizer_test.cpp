#include "coordinator/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/test_data.h"

namespace terrace::text {
namespace pre_tokenizer_test {

using nlohmann::json;

PreTokenizer made(const std::string& name) {
  const PreTokenizerInfo* info = find_pre_tokenizer(name);
  EXPECT_NE(info, nullptr) << name;
  return PreTokenizer::make(*info).value();
}

std::vector<std::size_t> ends_of(const PreTokenizer& pre, std::string_view text) {
  std::vector<std::size_t> ends;
  const Status status = pre.split(text, ends);
  EXPECT_TRUE(status.ok()) << status.error().text();
  return ends;
}

// The pieces with a bar between them.
std::string barred(const PreTokenizer& pre, std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  for (const std::size_t end : ends_of(pre, text)) {
    out += (begin == 0 ? "" : "|") + std::string(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

TEST(PreTokenizer, SplitVectors_OfEveryNameThatHasThem) {
  std::set<std::string> tested;
  for (const PreTokenizerInfo& info : all_pre_tokenizers()) {
    const auto path = terrace::test::data_dir() / "tokenizer" / ("split-" + std::string(info.name) + ".json");
    std::ifstream in(path);
    if (!in) continue;
    const PreTokenizer pre = made(std::string(info.name));
    const json vectors = json::parse(in);
    for (const json& row : vectors["cases"])
      EXPECT_EQ(ends_of(pre, row["text"].get<std::string>()), row["ends"].get<std::vector<std::size_t>>())
          << info.name << ", " << row["name"];
    tested.emplace(info.name);
  }
  for (const char* name : {"gpt-2", "qwen2", "llama-bpe", "deepseek-llm", "deepseek-v3", "gpt-4o", "glm4"})
    EXPECT_TRUE(tested.contains(name)) << name;
}

TEST(PreTokenizer, Patterns_AreThoseThatWereCheckedElsewhere) {
  const auto path = terrace::test::third_party_dir() / "golden" / "tokenizer" / "patterns.json";
  std::ifstream in(path);
  if (!in) GTEST_SKIP() << "no " << path;
  const json file = json::parse(in);
  const json& published = file["pre"];
  for (const PreTokenizerInfo& info : all_pre_tokenizers()) {
    if (!published.contains(info.name)) continue;  // default
    const json& row = published[std::string(info.name)];
    EXPECT_EQ(std::vector<std::string>(info.patterns.begin(), info.patterns.end()),
              row["patterns"].get<std::vector<std::string>>());
    for (const std::string alias : row["aliases"]) {
      ASSERT_NE(find_pre_tokenizer(alias), nullptr) << alias;
      EXPECT_EQ(find_pre_tokenizer(alias)->patterns, info.patterns) << alias;
    }
  }
}

TEST(PreTokenizer, OneSentence_ByEveryName) {
  const std::string text = "I'm HTMLParser 12345,  don'T\n\n  x=3.14! 你好ab";
  EXPECT_EQ(barred(made("gpt-2"), text), "I|'m| HTMLParser| 12345|,| | don|'|T|\n\n | x|=|3|.|14|!| 你好ab");
  EXPECT_EQ(barred(made("default"), text), "I|'|m| HTMLParser| |123|45|,| | don|'|T|\n\n | x|=|3|.|14|!| 你好ab");
  EXPECT_EQ(barred(made("qwen2"), text), "I|'m| HTMLParser| |1|2|3|4|5|,| | don|'T|\n\n| | x|=|3|.|1|4|!| 你好ab");
}

TEST(PreTokenizer, MongolianSeparator_IsNoWhiteSpace) {
  EXPECT_EQ(barred(made("gpt-2"), "a\u180Eb"), "a|\u180E|b");
  EXPECT_EQ(barred(made("gpt-2"), "a \u180Eb"), "a| \u180E|b");
  EXPECT_EQ(barred(made("gpt-2"), "a \u3000b"), "a| |\u3000|b");
}

TEST(PreTokenizer, LongS_FoldsInQwen2Contractions) { EXPECT_EQ(barred(made("qwen2"), "it'\u017F"), "it|'\u017F"); }

TEST(PreTokenizer, Names_AreUniqueAndUnknownOnesNotFound) {
  std::set<std::string_view> names;
  for (const PreTokenizerInfo& info : all_pre_tokenizers()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    for (const std::string_view alias : info.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
  }
  EXPECT_EQ(find_pre_tokenizer("wombat"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
}

TEST(PreTokenizer, MegabytesOfOneKind_AreCut) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  for (const char* name : {"gpt-2", "default", "qwen2"}) {
    const PreTokenizer pre = made(name);
    EXPECT_EQ(ends_of(pre, std::string(kBytes, 'a')).size(), 1u) << name;
    EXPECT_EQ(ends_of(pre, std::string(kBytes, ' ')).size(), 1u) << name;
    EXPECT_EQ(ends_of(pre, std::string(kBytes, ' ') + "a"), std::vector({kBytes - 1, kBytes + 1})) << name;
  }
}

}  // namespace pre_tokenizer_test
}  // namespace terrace::text
