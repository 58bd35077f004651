// What is wrong with a node before its share travels is one clear sentence that names it and exit code 1, within a
// bounded time; from then on it changes no token and ends nothing. Nodes that are left, and nodes whose coordinator
// died, serve the next one.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/wire/versions.h"
#include "tests/e2e/support/fake_node.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/random_model.h"

namespace terrace {
namespace node_failure_test {

using test::eventually;
using test::FakeNode;
using test::NodeProcess;
using test::Outcome;
using test::Process;
using test::run_program;
using Watch = test::NodeWatch;

constexpr const char* kAlways = "1000000";  // tokens: the run ends by a signal, or not within the test's patience
// A node that says nothing is given up after 10 s (the liveness limit, and that of a call); a hang would last.
constexpr std::chrono::seconds kHang{60};

// `terrace generate` without notes: whatever is on stderr is the error.
std::vector<std::string> generate(const std::filesystem::path& model, const std::vector<std::string>& nodes,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"generate", "--quiet", "--model", model.string()};
  for (const std::string& node : nodes) arguments.insert(arguments.end(), {"--node", node});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::terrace(arguments);
}

std::vector<std::string> short_story(const std::vector<std::string>& nodes) {
  return generate(test::demo_model(), nodes, {"--prompt", "Once upon a time", "--max-tokens", "4", "--json"});
}

// Exit 1 and one line, which begins with the node's name and tells `what`.
void expect_one_error(const Outcome& outcome, const std::string& node, const std::string& what) {
  ASSERT_TRUE(outcome.ended) << "it hangs";
  EXPECT_EQ(outcome.exit_code, 1) << "signal " << outcome.signal;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("terrace: " + node + ": ")) << outcome.err;
  EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
}

// ---- before anything is computed

TEST(NodeFailure, NobodyListens_OneErrorNamesTheNode) {
  expect_one_error(run_program(short_story({"127.0.0.1:1"}), "", kHang), "127.0.0.1:1", "cannot be reached");
}

TEST(NodeFailure, MachineThatAcceptsAndSaysNothing_OneErrorNamesTheNode) {
  NodeProcess node;
  node.kill(SIGSTOP);
  expect_one_error(run_program(short_story({node.address()}), "", kHang), node.address(), "no answer in time");
}

TEST(NodeFailure, OneOfTwoCannotBeReached_ItIsNamedAndTheOtherIsClean) {
  NodeProcess node;
  expect_one_error(run_program(short_story({node.address(), "127.0.0.1:1"}), "", kHang), "127.0.0.1:1",
                   "cannot be reached");
  EXPECT_TRUE(Watch(node.address()).until_clean());
  node.stop();
}

TEST(NodeFailure, OtherProtocolRange_OneErrorWithBothRanges) {
  FakeNode node({.protocol_min = 7, .protocol_max = 9});
  expect_one_error(run_program(short_story({node.address()}), "", kHang), node.address(),
                   fmt::format("speaks protocol 7 to 9 (terrace-node 99.0), this coordinator {} to {}",
                               wire::kProtocolMin, wire::kProtocolMax));
  EXPECT_EQ(node.sessions_asked(), 0);
}

TEST(NodeFailure, OtherNumericsVersion_OneErrorWithBothVersions) {
  FakeNode node({.numerics_version = 2});
  expect_one_error(run_program(short_story({node.address()}), "", kHang), node.address(),
                   "numerics version 2, this coordinator by 1");
  EXPECT_EQ(node.sessions_asked(), 0);
}

TEST(NodeFailure, TooLittleMemory_OneErrorWithTheNodesNumbers) {
  NodeProcess node({"--ram", "1M"});
  const Outcome outcome = run_program(short_story({node.address()}), "", kHang);
  expect_one_error(outcome, node.address(), "offers 1M (of a budget of 1M)");
  EXPECT_TRUE(Watch(node.address()).until_clean());
  node.stop();
}

// ---- during the work

// A small model on two nodes; the first is the one that something happens to, and slow where a test needs the time.
class NodeFailureAtWork : public testing::Test {
 protected:
  void SetUp() override { test::make_random_model({}, model_); }

  std::vector<std::string> nodes() const { return {node_.address(), other_.address()}; }
  // The node that is left serves the next coordinator, to the bit.
  void expect_other_serves() {
    EXPECT_TRUE(Watch(other_.address()).until_clean());
    const std::vector<std::string> prompt = {"--prompt", "ab", "--max-tokens", "8", "--json"};
    const Outcome alone = run_program(generate(model_, {}, prompt));
    const Outcome with = run_program(generate(model_, {other_.address()}, prompt));
    ASSERT_EQ(with.exit_code, 0) << with.err;
    EXPECT_EQ(nlohmann::json::parse(with.out)["logits_xxh3"], nlohmann::json::parse(alone.out)["logits_xxh3"]);
    other_.stop();
  }
  std::vector<std::string> endless_decode() const {
    return generate(model_, nodes(), {"--prompt", "ab", "--max-tokens", kAlways});
  }

  test::TempDir dir_;
  const std::filesystem::path model_ = dir_ / "random.gguf";
  NodeProcess node_{{"--isa", "scalar", "--threads", "1"}};
  NodeProcess other_;
};

// Tokens and logits are those of a run without nodes, and the first node's leg tells what became of it.
nlohmann::json expect_same_tokens(const Outcome& outcome, const Outcome& alone) {
  EXPECT_TRUE(outcome.ended) << "it hangs";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err << " signal " << outcome.signal;
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  if (outcome.exit_code != 0 || alone.exit_code != 0) return {};
  const nlohmann::json got = nlohmann::json::parse(outcome.out), expected = nlohmann::json::parse(alone.out);
  EXPECT_EQ(got["tokens"], expected["tokens"]);
  EXPECT_EQ(got["logits_xxh3"], expected["logits_xxh3"]);
  return got["legs"][1];
}

const std::vector<std::string> kDecode = {"--prompt", "ab", "--max-tokens", "600", "--json"};

TEST_F(NodeFailureAtWork, KilledDuringDecode_SameTokensAndTheOtherNodeServesOn) {
  Process coordinator(generate(model_, nodes(), kDecode));
  ASSERT_TRUE(Watch(node_.address()).until_rows(100));
  node_.kill(SIGKILL);
  const nlohmann::json leg = expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, kDecode)));
  EXPECT_EQ(leg["state"], "lost");
  EXPECT_EQ(leg["losses"], 1);
  EXPECT_GT(leg["hedged_pairs"], 0);
  EXPECT_NE(leg["reason"].get<std::string>().find("the node is lost"), std::string::npos) << leg;
  expect_other_serves();
}

// It waits for its sessions and then ends them itself. The coordinator stands still meanwhile, so that the run is not
// through before the node is.
TEST_F(NodeFailureAtWork, EndedBySigtermDuringDecode_SameTokensAndTheOtherNodeServesOn) {
  Process coordinator(generate(model_, nodes(), kDecode));
  ASSERT_TRUE(Watch(node_.address()).until_rows(100));
  coordinator.kill(SIGSTOP);
  node_.stop();
  coordinator.kill(SIGCONT);
  const nlohmann::json leg = expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, kDecode)));
  EXPECT_EQ(leg["state"], "lost");
  EXPECT_EQ(leg["losses"], 1);
  EXPECT_GT(leg["pairs"], 0);
  EXPECT_NE(leg["reason"].get<std::string>().find("this node is shutting down"), std::string::npos) << leg;
  expect_other_serves();
}

TEST_F(NodeFailureAtWork, KilledDuringPrompt_SameTokensAndTheOtherNodeServesOn) {
  test::write_file(dir_ / "prompt", std::string(6'000, 'a') + " end");
  const std::vector<std::string> prompt = {
      "--prompt-file", (dir_ / "prompt").string(), "--batch", "64", "--max-tokens", "4", "--json"};
  Process coordinator(generate(model_, nodes(), prompt));
  ASSERT_TRUE(Watch(node_.address()).until_rows(64));
  node_.kill(SIGKILL);
  const nlohmann::json leg = expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, prompt)));
  EXPECT_EQ(leg["state"], "lost");
  EXPECT_GT(leg["hedged_pairs"], 0);
  expect_other_serves();
}

// It says nothing any more: a hedge, then nobody asks it, and after the hard limit it is lost. Until then what it owns
// is brought into memory once, and computed there: were each slab read for its pair, as in the first steps, it were as
// many bytes as pairs have slabs.
TEST_F(NodeFailureAtWork, StoppedDuringDecode_SameTokensWithoutWaitingForIt) {
  Process coordinator(generate(model_, nodes(), kDecode));
  ASSERT_TRUE(Watch(node_.address()).until_rows(100));
  node_.kill(SIGSTOP);
  const nlohmann::json leg = expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, kDecode)));
  EXPECT_TRUE(leg["state"] == "suspect" || leg["state"] == "lost") << leg;
  EXPECT_GT(leg["hedged_pairs"], 0);
  EXPECT_GT(leg["skipped"], 0);
  const auto file = gguf::File::open(model_);
  ASSERT_TRUE(file.ok()) << file.error().text();
  const auto experts = manifest::find_experts(*file);
  ASSERT_TRUE(experts.ok()) << experts.error().text();
  std::uint64_t smallest = experts->slab_bytes(0);
  for (std::uint32_t layer = 1; layer < experts->layers.size(); ++layer)
    smallest = std::min(smallest, experts->slab_bytes(layer));
  EXPECT_LT(leg["backstop_bytes"], leg["hedged_pairs"].get<std::uint64_t>() * smallest) << leg;
  expect_other_serves();
}

// A node that comes back to life goes on where it is asked next.
TEST_F(NodeFailureAtWork, StoppedAndContinued_SameTokens) {
  Process coordinator(generate(model_, nodes(), kDecode));
  ASSERT_TRUE(Watch(node_.address()).until_rows(100));
  node_.kill(SIGSTOP);
  ASSERT_TRUE(Watch(other_.address()).until_rows(200));
  node_.kill(SIGCONT);
  expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, kDecode)));
  EXPECT_TRUE(Watch(node_.address()).until_clean());
  node_.stop();
  expect_other_serves();
}

TEST_F(NodeFailureAtWork, BothNodesKilled_SameTokens) {
  Process coordinator(generate(model_, nodes(), kDecode));
  ASSERT_TRUE(Watch(node_.address()).until_rows(100));
  node_.kill(SIGKILL);
  other_.kill(SIGKILL);
  expect_same_tokens(coordinator.wait(kHang), run_program(generate(model_, {}, kDecode)));
}

TEST_F(NodeFailureAtWork, CoordinatorKilled_NodesAreCleanAndServeOn) {
  Process coordinator(endless_decode());
  Watch watch(other_.address());
  ASSERT_TRUE(watch.until_rows(100));
  EXPECT_GT(other_.reserved(), 0u);
  coordinator.kill(SIGKILL);
  EXPECT_TRUE(Watch(node_.address()).until_clean());
  EXPECT_TRUE(watch.until_clean());
  const nlohmann::json status = other_.status();
  EXPECT_EQ(status.at("memory").at("reserved"), 0);
  EXPECT_EQ(status.at("sessions").size(), 0u);
  node_.stop();
  expect_other_serves();
}

TEST_F(NodeFailureAtWork, TwoCoordinatorsAtOnce_BothGetTheirOwnTokens) {
  const auto tokens = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const nlohmann::json json = nlohmann::json::parse(outcome.out);
    return std::pair(json.at("tokens"), json.at("logits_xxh3"));
  };
  const std::vector<std::string> first = {"--prompt", "ab", "--max-tokens", "600", "--json"};
  const std::vector<std::string> second = {"--prompt", "xyz", "--max-tokens", "600", "--json"};
  const auto first_alone = tokens(run_program(generate(model_, {}, first)));
  const auto second_alone = tokens(run_program(generate(model_, {}, second)));
  Process one(generate(model_, nodes(), first)), two(generate(model_, nodes(), second));
  EXPECT_TRUE(Watch(node_.address()).until_sessions(2)) << "they were never there at once";
  EXPECT_EQ(tokens(one.wait()), first_alone);
  EXPECT_EQ(tokens(two.wait()), second_alone);
  EXPECT_NE(first_alone, second_alone);
  EXPECT_TRUE(Watch(node_.address()).until_clean());
  node_.stop();
  other_.stop();
}

// ---- while weights travel

constexpr test::RandomModel kManyBytes = {.d_model = 1024, .experts = 32, .ff = 512};  // 200 MB of experts

class NodeFailureDuringWeights : public testing::TestWithParam<int> {};  // the signal

TEST_P(NodeFailureDuringWeights, SameTokensWithTheOtherNode_AndTheReasonNamesNodeAndLane) {
  const test::TempDir dir;
  test::make_random_model(kManyBytes, dir / "big.gguf");
  NodeProcess node, other;
  const std::vector<std::string> prompt = {"--prompt", "ab", "--max-tokens", "4", "--json"};
  std::vector<std::string> shared = prompt;
  shared.insert(shared.end(), {"--share", node.address() + "=0-23," + other.address() + "=24-31"});
  Process coordinator(generate(dir / "big.gguf", {node.address(), other.address()}, shared));
  ASSERT_TRUE(Watch(node.address()).until_session([](const auto& status, const auto& session) {
    return status.memory_used > 0 || session.epoch != 0;
  }));
  node.kill(GetParam());
  const Outcome alone = run_program(generate(dir / "big.gguf", {}, prompt));
  const Outcome outcome = coordinator.wait(kHang);
  const nlohmann::json leg = expect_same_tokens(outcome, alone);
  ASSERT_FALSE(leg.is_null());
  EXPECT_EQ(leg["state"], "lost");
  EXPECT_EQ(leg["losses"], 1);
  EXPECT_EQ(leg["experts"], 0);
  EXPECT_EQ(leg["reason"].get<std::string>().find(node.address() + ": the node is lost (weights lane)"), 0u) << leg;
  EXPECT_GT(nlohmann::json::parse(outcome.out)["legs"][2]["pairs"], 0) << "the other node has its share";
  other.stop();
}
INSTANTIATE_TEST_SUITE_P(Signals, NodeFailureDuringWeights, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& test) { return test.param == SIGKILL ? "Killed" : "Stopped"; });

}  // namespace node_failure_test
}  // namespace terrace
