// Every file of tests/data/gguf/index.json, made by its script.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "common/gguf/file.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::gguf {
namespace {

using nlohmann::json;

// The index calls these faults of the model; they concern which files belong together, so open() finds them.
bool is_split_fault(const json& entry) {
  return entry["expect"] == "error" && entry["file"].get<std::string>().find("-split-") != std::string::npos;
}

// Lawful or a matter of taste ("either"), and refused by us: names go into messages and JSON, the format's alignment
// is a multiple of 8, arrays of arrays have no use.
bool is_refused_by_choice(const std::string& file) {
  for (const char* name : {"key-not-utf8", "key-with-nul", "array-nested-2", "alignment-4.", "name-200"})
    if (file.find(name) != std::string::npos) return true;
  return false;
}

bool must_fail(const json& entry) {
  if (entry["expect"] == "either") return is_refused_by_choice(entry["file"]);
  return entry["expect"] == "error" && (entry["stage"] == "container" || is_split_fault(entry));
}

class HostileFiles : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new test::TempDir;
    const auto script = test::data_dir() / "gguf" / "make_hostile.py";
    const std::string command = "python3 '" + script.string() + "' '" + dir_->path().string() + "' > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    index_ = new json(json::parse(test::read_file(*dir_ / "index.json")));
  }
  static void TearDownTestSuite() {
    delete index_;
    delete dir_;
  }
  static inline test::TempDir* dir_ = nullptr;
  static inline json* index_ = nullptr;
};

TEST_F(HostileFiles, EachIsRefusedOrOpenedAsTheIndexSays) {
  ASSERT_EQ((*index_)["files"].size(), 153u);
  for (const json& entry : (*index_)["files"]) {
    const std::string name = entry["file"];
    const auto file = File::open(*dir_ / name);
    if (must_fail(entry)) {
      ASSERT_FALSE(file.ok()) << name << ": " << entry["what"];
    } else {
      ASSERT_TRUE(file.ok()) << file.error().text();
    }
  }
}

TEST_F(HostileFiles, MessagesNameFileFaultAndOffset) {
  for (const json& entry : (*index_)["files"]) {
    if (!must_fail(entry) || entry["expect"] == "either") continue;
    const std::string name = entry["file"];
    const auto file = File::open(*dir_ / name);
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_NE(file.error().text().find(name), std::string::npos) << file.error().text();
    EXPECT_NE(file.error().text().find("offset "), std::string::npos) << file.error().text();
    for (const std::string word : entry["says"])
      EXPECT_NE(file.error().text().find(word), std::string::npos)
          << name << " should say \"" << word << "\": " << file.error().text();
  }
}

TEST_F(HostileFiles, EveryValueTypeIsReadBack) {
  const auto file = File::open(*dir_ / "138-every-value-type.gguf");
  ASSERT_TRUE(file.ok()) << file.error().text();
  const std::pair<const char*, const char*> expected[] = {
      {"test.type_0", "255"},
      {"test.type_1", "-128"},
      {"test.type_2", "65535"},
      {"test.type_3", "-32768"},
      {"test.type_4", "4294967295"},
      {"test.type_5", "-2147483648"},
      {"test.type_6", "-0"},
      {"test.type_7", "true"},
      {"test.type_8", ""},
      {"test.type_10", "18446744073709551615"},
      {"test.type_12", "1e+300"},
      {"test.type_11", "-9223372036854775808"},
      {"test.array_8", "[\"\", \"\"]"},
      {"test.array_1", "[-128, -128]"},
  };
  for (const auto& [key, text] : expected) {
    const Value* value = file->find(key);
    ASSERT_NE(value, nullptr) << key;
    EXPECT_EQ(value->text(), text) << key;
  }
}

}  // namespace
}  // namespace terrace::gguf
