// Ids that independent implementations gave: the demo model's vocabulary, and published ones where they are at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/gguf/file.h"
#include "coordinator/text/tokenizer.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::text {
namespace golden_test {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

Tokenizer tokenizer_of(const std::filesystem::path& path) {
  const auto file = gguf::File::open(path);
  EXPECT_TRUE(file.ok()) << file.error().text();
  return Tokenizer::make(vocabulary_from_gguf(*file).value()).value();
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

void expect_cases(const Tokenizer& t, const json& vectors) {
  for (const json& row : vectors["cases"]) {
    const std::string text = row["text"];
    const auto ids = t.encode(text, {.parse_special = false}).value();
    EXPECT_EQ(ids, row["ids"].get<Ids>()) << row["name"];
    const auto special = t.encode(text, {.parse_special = true}).value();
    EXPECT_EQ(special, (row.contains("ids_special") ? row["ids_special"] : row["ids"]).get<Ids>()) << row["name"];
    if (row.value("lossy", false)) continue;
    EXPECT_EQ(t.decode(ids, {}).value(), text) << row["name"];
    EXPECT_EQ(t.decode(special, {}).value(), text) << row["name"];
  }
}

// The policy of tokenizer.h: the column `bytes`, and `replace` where the vocabulary lacks a byte.
void expect_invalid_utf8(const Tokenizer& t, const json& vectors) {
  for (const json& row : vectors["invalid_utf8"]) {
    const std::string bytes = from_hex(row["hex"]);
    const bool kept = !row["bytes"].is_null();
    const auto ids = t.encode(bytes, {}).value();
    EXPECT_EQ(ids, row[kept ? "bytes" : "replace"].get<Ids>()) << row["name"];
    if (!kept) continue;
    EXPECT_EQ(t.decode(ids, {}).value(), bytes) << row["name"];
  }
}

TEST(TokenizerGolden, DemoModel) {
  const Tokenizer t = tokenizer_of(terrace::test::demo_model());
  std::ifstream in(terrace::test::data_dir() / "tokenizer" / "demo.json");
  const json vectors = json::parse(in);
  ASSERT_EQ(t.size(), vectors["tokens"]);
  EXPECT_TRUE(t.notes().empty()) << t.notes()[0];
  expect_cases(t, vectors);
  expect_invalid_utf8(t, vectors);
}

class PublishedVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedVocabulary, EqualsItsVectors) {
  const std::string name = GetParam();
  const auto dir = terrace::test::third_party_dir() / "golden" / "tokenizer";
  const auto packed = dir / (name + ".gguf.xz");
  if (!std::filesystem::exists(packed)) GTEST_SKIP() << "no " << packed;
  const terrace::test::TempDir temp;
  const auto unpacked = temp / (name + ".gguf");
  const std::string command = "xz -dc '" + packed.string() + "' > '" + unpacked.string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  const Tokenizer t = tokenizer_of(unpacked);
  std::ifstream in(dir / (name + ".json"));
  const json vectors = json::parse(in);
  ASSERT_EQ(t.size(), vectors["tokens"]);
  for (const std::string& note : t.notes()) std::printf("%s: note: %s\n", name.c_str(), note.c_str());
  expect_cases(t, vectors);
  expect_invalid_utf8(t, vectors);
  for (const json& pair : vectors["upstream"])
    EXPECT_EQ(t.encode(pair["text"].get<std::string>(), {.parse_special = true}).value(), pair["ids"].get<Ids>())
        << pair["text"];
}

INSTANTIATE_TEST_SUITE_P(All, PublishedVocabulary, ::testing::Values("gpt-2", "mpt", "deepseek-llm"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '-');
                           return name;
                         });

// The comparison must see a vocabulary whose merges stand in the wrong order.
TEST(TokenizerGolden, MergesInReverse_AreSeen) {
  const auto file = gguf::File::open(terrace::test::demo_model());
  ASSERT_TRUE(file.ok());
  Vocabulary vocabulary = vocabulary_from_gguf(*file).value();
  std::ranges::reverse(vocabulary.merges);
  const Tokenizer t = Tokenizer::make(std::move(vocabulary)).value();
  std::ifstream in(terrace::test::data_dir() / "tokenizer" / "demo.json");
  const json vectors = json::parse(in);
  std::size_t n_different = 0;
  for (const json& row : vectors["cases"])
    n_different += t.encode(row["text"].get<std::string>(), {}).value() != row["ids"].get<Ids>();
  EXPECT_GT(n_different, 0u);
}

}  // namespace golden_test
}  // namespace terrace::text
