// Nodes and coordinators that die and come back, as real processes: a restarted node is used again in the middle of a
// generation, and whoever shares a node with a coordinator that died goes on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/random_model.h"

namespace terrace {
namespace rejoin_test {

using test::eventually;
using test::NodeProcess;
using test::NodeWatch;
using test::Process;

// No run gets so far within a test's patience.
constexpr const char* kWithoutEnd = "1000000";
constexpr std::uint32_t kLongContext = 1'000'000;

// `terrace generate` that writes its text as it comes.
std::vector<std::string> endless(const std::filesystem::path& model, const std::vector<std::string>& nodes,
                                 const std::string& prompt) {
  std::vector<std::string> arguments = {"generate", "--stream",  "--model", model.string(), "--prompt",
                                        prompt,     "--threads", "1",       "--max-tokens", kWithoutEnd};
  for (const std::string& node : nodes) arguments.insert(arguments.end(), {"--node", node});
  return test::terrace(arguments);
}

std::ptrdiff_t lines_with(const std::string& text, const std::string& part) {
  std::ptrdiff_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

class Rejoin : public testing::Test {
 protected:
  void SetUp() override { test::make_random_model({.context = kLongContext}, model_); }

  // What a coordinator has written so far is the beginning of what it writes without nodes.
  void expect_text_alone(Process& coordinator, const std::string& prompt) {
    EXPECT_TRUE(coordinator.running()) << coordinator.err();
    const std::string text = coordinator.out();
    coordinator.kill(SIGKILL);
    EXPECT_FALSE(text.empty());
    Process alone(endless(model_, {}, prompt));
    ASSERT_TRUE(eventually([&] { return alone.out().size() >= text.size(); })) << alone.err();
    EXPECT_EQ(alone.out().substr(0, text.size()), text);
  }
  // Some more text than there is now.
  bool until_more_text(Process& coordinator) {
    const std::size_t now = coordinator.out().size();
    return eventually([&] { return coordinator.out().size() > now + 200; });
  }

  test::TempDir dir_;
  const std::filesystem::path model_ = dir_ / "random.gguf";
  NodeProcess node_{{"--threads", "1"}};
  NodeProcess other_{{"--threads", "1"}};
};

TEST_F(Rejoin, NodeRestartedDuringDecode_SameTokensAndUsedAgain) {
  Process coordinator(endless(model_, {node_.address(), other_.address()}, "ab"));
  ASSERT_TRUE(NodeWatch(node_.address()).until_rows(100)) << coordinator.err();
  node_.restart();
  ASSERT_TRUE(NodeWatch(node_.address()).until_rows(100)) << coordinator.err();
  ASSERT_TRUE(until_more_text(coordinator));
  const std::string told = coordinator.err();
  EXPECT_EQ(lines_with(told, node_.address() + ": the node is lost"), 1) << told;
  EXPECT_EQ(lines_with(told, node_.address() + ": back after "), 1) << told;
  EXPECT_EQ(lines_with(told, other_.address() + ": the node is lost"), 0) << told;
  EXPECT_TRUE(NodeWatch(other_.address()).until_session([](const auto&, const auto& session) {
    return session.epoch > 1;
  })) << "the node that stayed has acknowledged the epoch";
  expect_text_alone(coordinator, "ab");
  EXPECT_TRUE(NodeWatch(node_.address()).until_clean());
  EXPECT_TRUE(NodeWatch(other_.address()).until_clean());
  node_.stop();
  other_.stop();
}

TEST_F(Rejoin, BothNodesRestartedOneAfterTheOther_SameTokensAndBothUsedAgain) {
  Process coordinator(endless(model_, {node_.address(), other_.address()}, "xyz"));
  for (NodeProcess* node : {&node_, &other_}) {
    ASSERT_TRUE(NodeWatch(node->address()).until_rows(50)) << coordinator.err();
    node->restart();
  }
  ASSERT_TRUE(NodeWatch(node_.address()).until_rows(50)) << coordinator.err();
  ASSERT_TRUE(NodeWatch(other_.address()).until_rows(50)) << coordinator.err();
  expect_text_alone(coordinator, "xyz");
}

// A node that stood still for longer than the coordinator waits, and then goes on, has no use for its old session.
TEST_F(Rejoin, NodeStoppedAndContinued_SameTokensAndUsedAgain) {
  Process coordinator(endless(model_, {node_.address(), other_.address()}, "ab"));
  ASSERT_TRUE(NodeWatch(node_.address()).until_rows(100)) << coordinator.err();
  node_.kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return lines_with(coordinator.err(), node_.address() + ": ") > 1; }));
  node_.kill(SIGCONT);
  ASSERT_TRUE(eventually([&] { return lines_with(coordinator.err(), node_.address() + ": back after ") == 1; }))
      << coordinator.err();
  ASSERT_TRUE(NodeWatch(node_.address()).until_rows(100)) << coordinator.err();
  expect_text_alone(coordinator, "ab");
  EXPECT_TRUE(NodeWatch(node_.address()).until_clean());
}

TEST_F(Rejoin, OneOfSeveralCoordinatorsKilled_OthersGoOnAndItsMemoryIsFree) {
  const std::filesystem::path third_model = dir_ / "third.gguf";
  test::make_random_model({.seed = 2, .context = kLongContext}, third_model);
  const std::vector<std::string> nodes = {node_.address(), other_.address()};
  Process first(endless(model_, nodes, "ab")), second(endless(model_, nodes, "xyz"));
  NodeWatch watch(node_.address());
  std::uint64_t reserved = 0, used = 0;
  ASSERT_TRUE(watch.until([&](const legs::NodeStatus& status) {
    reserved = status.memory_reserved;
    used = status.memory_used;
    return status.sessions.size() == 2 &&
           std::ranges::all_of(status.sessions, [](const auto& s) { return s.rows > 50; });
  })) << first.err()
      << second.err();
  Process third(endless(third_model, nodes, "ab"));
  ASSERT_TRUE(watch.until([&](const legs::NodeStatus& status) {
    return status.sessions.size() == 3 &&
           std::ranges::all_of(status.sessions, [](const auto& s) { return s.rows > 50; });
  })) << third.err();
  third.kill(SIGKILL);
  EXPECT_TRUE(watch.until([&](const legs::NodeStatus& status) {
    return status.sessions.size() == 2 && status.memory_reserved == reserved && status.memory_used == used;
  }));
  EXPECT_TRUE(until_more_text(first));
  EXPECT_TRUE(until_more_text(second));
  for (const Process* coordinator : {&first, &second}) EXPECT_EQ(lines_with(coordinator->err(), "lost"), 0);
  expect_text_alone(first, "ab");
  expect_text_alone(second, "xyz");
  EXPECT_TRUE(watch.until_clean());
}

TEST(RejoinWithWeights, CoordinatorKilledWhileItsShareTravelsAgain_NodeIsClean) {
  const test::TempDir dir;
  const std::filesystem::path model = dir / "big.gguf";
  test::make_random_model({.d_model = 1024, .experts = 32, .ff = 512, .context = kLongContext}, model);  // 200 MB
  NodeProcess node({"--threads", "1"});
  Process coordinator(endless(model, {node.address()}, "ab"));
  ASSERT_TRUE(NodeWatch(node.address()).until_rows(10)) << coordinator.err();
  node.restart();
  ASSERT_TRUE(NodeWatch(node.address()).until_session([](const auto& status, const auto&) {
    return status.memory_used > 0;
  })) << coordinator.err();
  coordinator.kill(SIGKILL);
  EXPECT_TRUE(NodeWatch(node.address()).until_clean());
  node.stop();
}

}  // namespace rejoin_test
}  // namespace terrace
