// The tokenizer's share of tests/data/gguf/index.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "common/gguf/file.h"
#include "coordinator/text/tokenizer.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::text {
namespace vocabulary_gguf_test {

using nlohmann::json;
using ::testing::HasSubstr;

Result<Tokenizer> tokenizer_of(const std::filesystem::path& path) {
  const auto file = gguf::File::open(path);
  if (!file.ok()) return file.error();
  TERRACE_ASSIGN_OR_RETURN(auto vocabulary, vocabulary_from_gguf(*file));
  return Tokenizer::make(std::move(vocabulary));
}

std::string joined_notes(const Tokenizer& t) {
  std::string all;
  for (const std::string& note : t.notes()) all += note + "\n";
  return all;
}

class HostileVocabularies : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto script = terrace::test::data_dir() / "gguf" / "make_hostile.py";
    const std::string command = "python3 '" + script.string() + "' '" + dir_.path().string() + "' > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    index_ = json::parse(terrace::test::read_file(dir_ / "index.json"))["files"];
  }
  terrace::test::TempDir dir_;
  json index_;
};

TEST_F(HostileVocabularies, EachIsRefusedOrUsedAsTheIndexSays) {
  std::size_t n_tested = 0;
  for (const json& entry : index_) {
    if (entry["stage"] != "tokenizer") continue;
    ++n_tested;
    const std::string name = entry["file"];
    const auto t = tokenizer_of(dir_ / name);
    const bool must_fail = entry["expect"] == "error";  // what is a matter of taste is used, with a note
    ASSERT_EQ(t.ok(), !must_fail) << name << ": " << (t.ok() ? entry["what"].get<std::string>() : t.error().text());
    // What is in the file is named with its offset; what is missing has none.
    if (!t.ok()) {
      EXPECT_EQ(t.error().text().find("(offset ") != std::string::npos, t.error().code() != ErrorCode::kNotFound)
          << t.error().text();
    }
    const std::string told = t.ok() ? joined_notes(*t) : t.error().text();
    for (const std::string word : entry["says"]) EXPECT_THAT(told, HasSubstr(word)) << name;
  }
  EXPECT_EQ(n_tested, 23u);
}

TEST_F(HostileVocabularies, NoOtherFileDoesMoreThanFail) {
  for (const json& entry : index_) {
    const auto t = tokenizer_of(dir_ / entry["file"].get<std::string>());
    if (!t.ok()) continue;
    EXPECT_EQ(t->decode(t->encode("hello world", {}).value(), {}).value(), "hello world") << entry["file"];
  }
}

TEST(VocabularyFromGguf, BaseFile_IsReadWhole) {
  const auto file = gguf::File::open(terrace::test::data_dir() / "gguf" / "base.gguf");
  ASSERT_TRUE(file.ok()) << file.error().text();
  const Vocabulary v = vocabulary_from_gguf(*file).value();
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "gpt-2");
  EXPECT_EQ(v.tokens.size(), 268u);
  EXPECT_EQ(v.types.size(), 268u);
  EXPECT_EQ(v.merges.size(), 9u);
  EXPECT_EQ(v.bos, 265u);
  EXPECT_EQ(v.eos, 267u);
  EXPECT_EQ(v.eot, std::nullopt);
  EXPECT_EQ(v.add_bos, false);
  EXPECT_EQ(v.add_eos, std::nullopt);
  EXPECT_THAT(v.chat_template, HasSubstr("<|im_start|>"));
  EXPECT_EQ(v.offsets.at("tokenizer.ggml.model"), file->find("tokenizer.ggml.model")->offset);
  EXPECT_TRUE(v.notes.empty());
}

}  // namespace vocabulary_gguf_test
}  // namespace terrace::text
