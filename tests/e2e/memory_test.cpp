// What a model costs in memory: its file, mapped and never expanded, and a scratch that the options state.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <ostream>

#include "coordinator/arch/architectures.h"
#include "coordinator/planner/host_memory.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace {
namespace memory_test {

using test::Process;
using test::run_program;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Code and libraries, and the heap that no weight is in: tokenizer, tensor tables, stacks. Measured: 13 MiB and 2.5.
constexpr std::uint64_t kProgram = 32 * kMiB;
constexpr std::uint64_t kProgramHeap = planner::kProgramBytes;

struct Model {
  std::string name;
  std::optional<test::RandomModel> random;  // nothing: the demo model
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

// What streams of `positions` and steps of `rows` need beside the file, as the planner states it.
std::uint64_t stated_scratch(const arch::ModelInfo& model, std::uint64_t positions, std::uint64_t rows) {
  return planner::cache_bytes(model, positions) + planner::trunk_scratch_bytes(model, rows);
}

class Memory : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer's own memory is not the program's";
#endif
    if (GetParam().random) test::make_random_model(*GetParam().random, dir_ / "model.gguf");
    file_ = GetParam().random ? dir_ / "model.gguf" : test::demo_model();
    bytes_ = std::filesystem::file_size(file_);
  }

  std::vector<std::string> generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", "--quiet", "--model", file_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::terrace(arguments);
  }
  // A run that has made its first text and is stopped there. Tokens are drawn evenly from the whole vocabulary, so that
  // the demo model does not end its story meanwhile: with this seed it takes 1,363 of them.
  std::unique_ptr<Process> stopped_in_decode(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--prompt", "ab", "--max-tokens",  "1000000", "--stream",
                                          "--seed",   "5",  "--temperature", "1000000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto process = std::make_unique<Process>(generate(arguments));
    EXPECT_TRUE(test::eventually([&] { return !process->out().empty() || !process->running(); }));
    process->kill(SIGSTOP);
    EXPECT_TRUE(process->running()) << process->err();
    return process;
  }
  arch::ModelInfo info() const {
    return test::must(arch::describe(test::must(gguf::File::open(file_)), arch::TrunkOptions()));
  }

  test::TempDir dir_;
  std::filesystem::path file_;
  std::uint64_t bytes_ = 0;
};

TEST_P(Memory, AfterLoad_ResidentIsAtMostFileAndStatedScratch) {
  const auto process = stopped_in_decode({});
  // What is anonymous cannot be the file: an expanded weight would be.
  const std::uint64_t resident = process->memory("VmRSS"), anonymous = process->memory("RssAnon");
  ASSERT_GT(anonymous, 0u);
  const arch::ModelInfo model = info();
  const std::uint64_t scratch = stated_scratch(model, 1024, 64);  // more than the first tokens use
  EXPECT_LE(resident, bytes_ + kProgram + scratch);
  EXPECT_LE(anonymous, kProgramHeap + scratch);
  // The second limit sees one layer's weights kept as f32, which take 32/9 of Q8_0.
  if (GetParam().name == "random_q8_0") {
    EXPECT_GT(bytes_ / model.n_layers * 32 / 9, kProgramHeap + scratch);
  }
}

TEST_P(Memory, PeakOfAShortGenerate_IsAtMostFileAndAQuarterAnd200MB) {
  const test::Outcome outcome = run_program(generate({"--prompt", "Once upon a time", "--max-tokens", "24"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LE(outcome.peak, bytes_ + bytes_ / 4 + 200'000'000);
}

TEST_P(Memory, PeakWithAPromptThatUsesEveryExpert_IsAtMostFileAndAQuarterAnd200MB) {
  const std::string corpus =
      test::read_file(test::source_dir() / "deploy" / "demo" / "corpus" / "fairy_tales.txt").substr(0, 500);
  const test::Outcome outcome = run_program(generate({"--max-tokens", "8", "-"}), corpus);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LE(outcome.peak, bytes_ + bytes_ / 4 + 200'000'000);
}

TEST_P(Memory, NodeWithEveryExpert_HoldsThemAsTheyLieInTheFile) {
  test::NodeProcess node;
  const std::uint64_t before = node.process().memory("RssAnon");
  const std::string everything = fmt::format("{}=0-{}", node.address(), info().n_experts - 1);
  const auto process = stopped_in_decode({"--node", node.address(), "--share", everything});
  const nlohmann::json memory = node.status().at("memory");
  EXPECT_LE(memory.at("used").get<std::uint64_t>(), bytes_ + bytes_ / 16);
#ifndef __SANITIZE_THREAD__  // it locks nothing, and says that it did
  // As it said at its start.
  if (node.process().err().find("memory lock: all experts\n") != std::string::npos)
    EXPECT_GE(memory.at("locked"), memory.at("used"));
  else
    EXPECT_NE(node.process().err().find("memory lock: as much as the limit of "), std::string::npos);
#endif
  EXPECT_LE(node.process().memory("RssAnon"), before + memory.at("reserved").get<std::uint64_t>() + kProgramHeap);
}

const test::RandomModel kQ8 = {.d_model = 1024, .experts = 24, .ff = 1024, .type = "q8_0"};
const test::RandomModel kF16 = {.d_model = 1024, .experts = 12, .ff = 1024, .type = "f16"};
INSTANTIATE_TEST_SUITE_P(Models, Memory,
                         testing::Values(Model{"demo", {}}, Model{"random_q8_0", kQ8}, Model{"random_f16", kF16}),
                         [](const auto& test) { return test.param.name; });

// A file chooses its context, up to 2^30 positions: what is kept for each of them is kept when it is used.
TEST(ContextOf2To30, TakesMemoryOnlyAsItIsUsed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory is not the program's";
#endif
  const test::TempDir dir;
  const std::filesystem::path file = dir / "model.gguf";
  test::make_random_model({.layers = 1, .context = 1u << 30}, file);
  const test::Outcome outcome = run_program(test::terrace(
      {"generate", "--quiet", "--model", file.string(), "--threads", "4", "--prompt", "ab", "--max-tokens", "1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LE(outcome.peak, std::filesystem::file_size(file) + kProgram);
}

}  // namespace memory_test
}  // namespace terrace
