// The programs over every hostile file of tests/data/gguf, and over models that lack a part: one line that names the
// file and exit code 1, or it works; never a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/command_here.h"
#include "tests/hostile/support/raw_gguf.h"

namespace terrace::test {
namespace {

constexpr int kFailure = 1;

json index_files() { return read_json(data_dir() / "gguf" / "index.json").at("files"); }

class HostileFile : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (json& entry : entries_)
      if (entry["file"] == GetParam()) entry_ = entry;
    // Made once for all of these by the test hostile_files, which ctest runs first.
    ASSERT_TRUE(std::filesystem::exists(path())) << "run this by ctest, or: make_hostile.py " << TERRACE_HOSTILE_FILES;
  }
  std::filesystem::path path() const { return std::filesystem::path(TERRACE_HOSTILE_FILES) / GetParam(); }
  bool must_fail(const std::vector<std::string>& stages) const {
    return entry_["expect"] == "error" && std::ranges::count(stages, entry_["stage"].get<std::string>()) != 0;
  }
  bool must_work() const { return entry_["expect"] == "accept" && entry_["stage"] == "all"; }

  void expect_ends_well(const Arguments& arguments, bool must_fail, bool must_work) const {
    SCOPED_TRACE(arguments[0]);
    // Each of these tests is a process of its own: a signal is its failure.
    const Outcome run = arguments[0] == "generate" ? run_program(terrace(arguments)) : run_command_here(arguments);
    ASSERT_TRUE(run.ended);
    ASSERT_EQ(run.signal, 0) << entry_["what"];
    if (run.exit_code == 0 && !must_fail) return;
    EXPECT_FALSE(must_work) << run.err;
    EXPECT_EQ(run.exit_code, kFailure) << entry_["what"] << "\n" << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    EXPECT_THAT(run.err, ::testing::StartsWith("terrace: " + path().string() + ": "));
  }

 private:
  json entries_ = index_files();
  json entry_;
};

TEST_P(HostileFile, EveryCommand_OneLineOrItWorks) {
  const std::string file = path().string();
  expect_ends_well({"inspect", file}, must_fail({"container"}), must_work());
  expect_ends_well({"inspect", file, "--json"}, must_fail({"container"}), must_work());
  expect_ends_well({"tokenize", "--quiet", "-m", file, "hello"}, must_fail({"container", "tokenizer"}), must_work());
  expect_ends_well({"generate", "--quiet", "-m", file, "-p", "hello", "-n", "2"},
                   must_fail({"container", "model", "tokenizer"}), must_work());
}

std::vector<std::string> file_names() {
  std::vector<std::string> names;
  for (const json& entry : index_files()) names.push_back(entry["file"]);
  return names;
}
// "012-key-empty.gguf" as "012_key_empty"
std::string test_name(const ::testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param.substr(0, tested.param.rfind('.'));
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Files, HostileFile, ::testing::ValuesIn(file_names()), test_name);

// ---- the node

// It opens files as everybody else does: one of each kind, behind its self check, which takes its time.
TEST(HostileFilesOfANode, OneOfEachKind_IsRefusedInOneLine) {
  std::set<std::string> kinds;
  for (const json& entry : index_files()) {
    if (entry["expect"] != "error" || entry["stage"] != "container" || !kinds.insert(entry["group"]).second) continue;
    const std::string file = (std::filesystem::path(TERRACE_HOSTILE_FILES) / entry["file"].get<std::string>()).string();
    const Outcome run = run_program({program("terrace-node"), "--listen", "127.0.0.1:0", "--threads", "1",
                                     "--log-level", "error", "--model", file});
    ASSERT_EQ(run.signal, 0) << file;
    EXPECT_EQ(run.exit_code, kFailure) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    EXPECT_THAT(run.err, ::testing::StartsWith("terrace-node: " + file + ": "));
  }
}

// ---- models that lack something

class IncompleteModel : public ::testing::Test {
 protected:
  std::string write(const RawGguf& raw) const {
    write_file(dir_ / "model.gguf", raw.bytes());
    write_file(dir_ / "ids.json", "[1, 2, 3, 4]");
    return (dir_ / "model.gguf").string();
  }
  void expect_error(const Arguments& arguments, const std::string& text) const {
    const Outcome run = run_terrace(arguments, kFailure);
    EXPECT_EQ(run.err, "terrace: " + (dir_ / "model.gguf").string() + ": " + text + "\n");
    EXPECT_EQ(run.out, "");
  }
  const TempDir dir_;
};

TEST_F(IncompleteModel, WithoutATokenizer_TextIsRefusedByTheKeyAndIdsWork) {
  RawGguf raw = RawGguf::base();
  std::erase_if(raw.keys, [](const RawKey& key) { return key.name.starts_with("tokenizer."); });
  const std::string model = write(raw), ids = (dir_ / "ids.json").string();
  const std::string missing = "key tokenizer.ggml.model is missing";
  expect_error({"tokenize", "--quiet", "-m", model, "x"}, missing);
  expect_error({"detokenize", "--quiet", "-m", model, "[1]"}, missing);
  expect_error({"generate", "--quiet", "-m", model, "-p", "x"}, missing);
  expect_error({"score", "--quiet", "-m", model, "--chunk", "4", "--text", ids}, missing);
  run_terrace({"score", "--quiet", "-m", model, "--chunk", "4", "--ids", ids});
  run_terrace({"bench", "--quiet", "-m", model, "-p", "4", "-n", "0", "-r", "1"});
  EXPECT_THAT(run_terrace({"inspect", model}).out, ::testing::HasSubstr("tokenizer    no: " + missing));
}

// Lawful, whatever it is worth: it costs what is used of it.
TEST_F(IncompleteModel, ContextOfABillionPositions_TakesMemoryOnlyForThoseUsed) {
  const std::string text = (source_dir() / "LICENSE").string();
  const auto peak = [&](std::uint32_t context, const Arguments& arguments) {
    RawGguf raw = RawGguf::base();
    raw.set("qwen3moe.context_length", raw::kU32, raw::number(context));
    Arguments all = arguments;
    all.insert(all.end(), {"--quiet", "-m", write(raw), "--threads", "8"});
    return run_terrace(all).peak;
  };
  for (const Arguments& arguments :
       {Arguments{"generate", "-p", "hello", "-n", "2"}, Arguments{"score", "--text", text, "--chunk", "64"}}) {
    SCOPED_TRACE(arguments[0]);
    const std::uint64_t expected = peak(64, arguments);
    EXPECT_LT(peak(1u << 30, arguments), expected + (std::uint64_t{32} << 20));
  }
}

TEST_F(IncompleteModel, UnknownArchitecture_IsNamedWithTheKnownOnes) {
  RawGguf raw = RawGguf::base();
  raw.set("general.architecture", raw::kString, raw::text("wombat"));
  const std::string model = write(raw);
  for (const Arguments& arguments : {Arguments{"generate", "--quiet", "-m", model, "-p", "x"},
                                     Arguments{"bench", "--quiet", "-m", model, "-p", "4", "-n", "0"}}) {
    const Outcome run = run_terrace(arguments, kFailure);
    EXPECT_THAT(run.err, ::testing::MatchesRegex("terrace: .*model.gguf: key general.architecture \\(offset [0-9]+\\) "
                                                 "is wombat.*qwen3moe\n"));
  }
  run_terrace({"tokenize", "--quiet", "-m", model, "x"});  // of any architecture
}

TEST_F(IncompleteModel, MissingTensorWrongShapeAndTypeWithoutKernel_AreOneLineEach) {
  RawGguf missing = RawGguf::base(), shape = RawGguf::base(), type = RawGguf::base();
  missing.take_tensor("blk.0.attn_q.weight");
  expect_error({"generate", "--quiet", "-m", write(missing), "-p", "x"}, "tensor blk.0.attn_q.weight is missing");
  std::swap(shape.tensor("blk.0.attn_k.weight").dims[0], shape.tensor("blk.0.attn_k.weight").dims[1]);
  shape.tensor("blk.0.attn_k.weight").type = raw::kTypeF32;
  shape.tensor("blk.0.attn_k.weight").data.resize(32 * 16 * 4);
  EXPECT_THAT(run_terrace({"generate", "--quiet", "-m", write(shape), "-p", "x"}, kFailure).err,
              ::testing::MatchesRegex("terrace: .*tensor blk.0.attn_k.weight \\(offset [0-9]+\\) has the shape .*\n"));
  RawTensor& matrix = type.tensor("blk.0.attn_q.weight");
  matrix.type = 41;  // Q1_0: 128 values in 18 bytes
  matrix.dims[0] = 128;
  matrix.data.resize(matrix.dims[1] * 18);
  type.set("qwen3moe.embedding_length", raw::kU32, raw::number(std::uint32_t{128}));
  EXPECT_THAT(run_terrace({"inspect", write(type)}).out, ::testing::HasSubstr("no kernel in this build"));
}

}  // namespace
}  // namespace terrace::test
