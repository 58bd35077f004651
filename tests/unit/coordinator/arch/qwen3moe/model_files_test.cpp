// Every file of tests/data/gguf/index.json that opens: what its keys and tensors must be refused for, and the lawful
// ones, which must run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "common/manifest/experts.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace {
namespace model_files_test {

using nlohmann::json;

// What is in the file is named with its offset; what is missing has none.
bool says_where(const Error& error) {
  return (error.text().find("(offset ") != std::string::npos) == (error.code() != ErrorCode::kNotFound);
}

class ModelFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto script = test::data_dir() / "gguf" / "make_hostile.py";
    const std::string command = "python3 '" + script.string() + "' '" + dir_.path().string() + "' > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    index_ = test::read_json(dir_ / "index.json").at("files");
  }

  // Opened and described: where a file of the model stage must fail at the latest.
  Result<arch::ModelInfo> described(const std::string& name) const {
    TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(dir_ / name));
    return arch::describe(file, {});
  }

  test::TempDir dir_;
  json index_;
};

TEST_F(ModelFiles, HostileKeysAndTensors_AreRefusedByName) {
  std::size_t n = 0;
  for (const json& entry : index_) {
    if (entry["stage"] != "model" || entry["expect"] != "error") continue;
    ++n;
    const std::string name = entry["file"];
    const auto info = described(name);
    ASSERT_FALSE(info.ok()) << name << ": " << entry["what"];
    EXPECT_NE(info.error().text().find(name), std::string::npos) << info.error().text();
    EXPECT_TRUE(says_where(info.error())) << info.error().text();
    for (const std::string word : entry["says"])
      EXPECT_NE(info.error().text().find(word), std::string::npos)
          << name << " should say \"" << word << "\": " << info.error().text();
  }
  EXPECT_EQ(n, 33u);
}

TEST_F(ModelFiles, ExpertsThatCannotBeFound_AreRefusedWithTheOffset) {
  std::size_t n = 0;
  for (const json& entry : index_) {
    const auto file = gguf::File::open(dir_ / entry["file"]);
    if (!file.ok() || file->tensors().empty()) continue;
    const auto experts = manifest::find_experts(*file);
    if (experts.ok()) continue;
    ++n;
    EXPECT_TRUE(says_where(experts.error())) << experts.error().text();
  }
  EXPECT_GE(n, 10u);
}

TEST_F(ModelFiles, LawfulFiles_GiveTheLogitsOfTheBase) {
  const std::vector<std::int32_t> tokens = {1, 2, 3, 200};
  std::map<std::string, std::vector<float>> logits;
  for (const json& entry : index_) {
    if (entry["stage"] != "all" || entry["expect"] != "accept") continue;
    const std::string name = entry["file"];
    SCOPED_TRACE(name);
    Serial serial;
    test::ModelUnderTest model(dir_ / name, {}, serial);
    logits[name] = test::Sequence(model.trunk()).feed(tokens, 4);
    EXPECT_EQ(logits[name], logits.begin()->second);
  }
  EXPECT_EQ(logits.size(), 15u);
}

TEST_F(ModelFiles, FileWithoutTensors_IsRefusedByTheFirstThatIsMissing) {
  for (const json& entry : index_) {
    const std::string name = entry["file"];
    if (name.find("-no-tensors") == std::string::npos) continue;
    const auto info = described(name);
    ASSERT_FALSE(info.ok());
    EXPECT_NE(info.error().text().find("token_embd.weight"), std::string::npos) << info.error().text();
    return;
  }
  FAIL() << "the file is not in the index";
}

TEST_F(ModelFiles, UnknownArchitecture_IsRefusedWithTheKnownOnes) {
  for (const json& entry : index_) {
    const std::string name = entry["file"];
    if (name.find("-arch-unknown") == std::string::npos) continue;
    const auto info = described(name);
    ASSERT_FALSE(info.ok());
    EXPECT_EQ(info.error().code(), ErrorCode::kUnsupported);
    for (const arch::Architecture& known : arch::architectures())
      EXPECT_NE(info.error().text().find(known.name), std::string::npos) << info.error().text();
    return;
  }
  FAIL() << "the file is not in the index";
}

TEST(ModelInfo, OfTheDemoModel) {
  const auto file = test::value_of(gguf::File::open(test::demo_model()));
  const auto info = test::value_of(arch::describe(file, {}));
  EXPECT_EQ(info.architecture, "qwen3moe");
  EXPECT_EQ(info.n_layers, 6u);
  EXPECT_EQ(info.n_experts, 32u);
  EXPECT_EQ(info.top_k, 4u);
  ASSERT_EQ(info.expert_bytes.size(), 6u);
  std::uint64_t expected = 0, one_expert_each = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (tensor.n_dims < 2) continue;
    if (tensor.n_dims == 3) one_expert_each += tensor.bytes / 32;
    if (tensor.name == "output.weight") {
      EXPECT_EQ(info.head_bytes, tensor.bytes);
    }
    if (tensor.name == "token_embd.weight") {
      EXPECT_EQ(info.embedding_row_bytes, tensor.bytes / tensor.shape[1]);
    }
    const bool experts = tensor.n_dims == 3;
    const bool embedding = tensor.name == "token_embd.weight";
    expected += experts ? tensor.bytes / 32 * 4 : embedding ? tensor.bytes / tensor.shape[1] : tensor.bytes;
  }
  EXPECT_EQ(info.weight_bytes_per_step, expected);
  EXPECT_EQ(std::accumulate(info.expert_bytes.begin(), info.expert_bytes.end(), std::uint64_t{0}), one_expert_each);
}

TEST(ModelOptions, ContextBeyondTheModels_IsRefusedWithBoth) {
  const auto file = test::value_of(gguf::File::open(test::tiny_model("tiny-mix")));
  arch::TrunkOptions options;
  options.context = 257;
  const auto info = arch::describe(file, options);
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(info.error().text().find("257"), std::string::npos) << info.error().text();
  EXPECT_NE(info.error().text().find("256"), std::string::npos) << info.error().text();
}

}  // namespace model_files_test
}  // namespace terrace
