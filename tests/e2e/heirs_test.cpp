// Nodes that take over a lost node's experts, as real processes under an engine in this one: the tokens stay the same,
// the host computes none of the lost experts once they have moved, and gives them back when the node is there again.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <thread>

#include "coordinator/app/engine.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/random_model.h"

namespace terrace {
namespace heirs_test {

using test::eventually;
using test::GateRun;
using test::LegWork;
using test::must;
using test::NodeProcess;
using test::NodeWatch;

constexpr std::uint64_t kTokens = 200;
constexpr std::uint64_t kFew = 8;
constexpr std::uint64_t kLayers = 4, kExperts = 16;
constexpr std::uint64_t kOwnedByA = 6 * kLayers, kOwnedByB = 5 * kLayers, kOwnedByC = 5 * kLayers;
const std::vector<std::int32_t> kPrompt = {17, 42, 99};

// The whole model on three nodes, nothing here; A is the one that is lost.
class Heirs : public testing::Test {
 protected:
  void SetUp() override {
    test::make_random_model({.layers = kLayers, .experts = kExperts}, model_);
    expected_ = test::gate_run(options({}), kPrompt, kTokens);
  }

  app::ModelOptions options(const std::vector<const NodeProcess*>& nodes) const {
    app::ModelOptions options = test::gate_options(model_);
    options.threads = 1;
    options.audit = 0;
    if (nodes.empty()) return options;
    for (const NodeProcess* node : nodes) options.nodes.push_back(node->address());
    options.share = nodes[0]->address() + "=0-5," + nodes[1]->address() + "=6-10," + nodes[2]->address() + "=11-15";
    return options;
  }
  void open(const std::vector<const NodeProcess*>& nodes) {
    engine_ = must(app::Engine::open(options(nodes), Environment({{"XDG_CACHE_HOME", test::cache_dir().string()}})));
  }

  // The tokens are those of a run without nodes, whatever `meanwhile` does.
  template <class Do>
  void expect_same_tokens(std::uint64_t n, Do&& meanwhile) {
    GateRun expected = expected_;
    expected.tokens.resize(n);
    expected.logits_xxh3.resize(n);
    std::thread other(std::forward<Do>(meanwhile));
    const GateRun got = test::gate_run(*engine_, app::prompt_rows(options({})), kPrompt, n);
    other.join();
    EXPECT_EQ(test::difference(expected, got), std::nullopt);
  }
  void expect_same_tokens(std::uint64_t n) {
    expect_same_tokens(n, [] {});
  }
  LegWork leg(std::size_t index) const { return test::work_of(engine_->board()).at(index); }
  // While tokens are made, which is when epochs change.
  template <class Condition>
  bool until(Condition condition) {
    return eventually([&] {
      expect_same_tokens(kFew);
      return condition();
    });
  }
  void kill_in_decode(NodeProcess& node) {
    expect_same_tokens(kTokens, [&node] {
      EXPECT_TRUE(NodeWatch(node.address()).until_rows(100));
      node.kill(SIGKILL);
    });
  }

  test::TempDir dir_;
  const std::filesystem::path model_ = dir_ / "random.gguf";
  GateRun expected_;
  std::unique_ptr<app::Engine> engine_;
};

enum Leg : std::size_t { kHost, kA, kB, kC };

TEST_F(Heirs, SurvivorInheritsTheLostShare_SameTokens) {
  NodeProcess a({"--threads", "1"}), b({"--threads", "1"}), c({"--threads", "1"});
  open({&a, &b, &c});
  const std::uint64_t reserved_at_b = b.reserved(), reserved_at_c = c.reserved();
  kill_in_decode(a);
  ASSERT_TRUE(until([&] { return leg(kB).experts + leg(kC).experts == kLayers * kExperts; }));
  EXPECT_EQ(leg(kA).state, legs::LegState::kLost);
  EXPECT_GT(leg(kB).experts, kOwnedByB);
  EXPECT_GT(leg(kC).experts, kOwnedByC);
  EXPECT_GT(b.reserved(), reserved_at_b);
  expect_same_tokens(kFew);  // its first step takes the epoch at the latest
  const std::uint64_t here = leg(kHost).pairs, there = leg(kB).pairs + leg(kC).pairs;
  expect_same_tokens(kTokens);
  EXPECT_EQ(leg(kHost).pairs, here) << "the host still computes lost experts";
  EXPECT_GT(leg(kB).pairs + leg(kC).pairs, there);

  a.restart();
  ASSERT_TRUE(until([&] { return leg(kA).experts == kOwnedByA; }));
  EXPECT_EQ(leg(kB).experts, kOwnedByB);
  EXPECT_EQ(leg(kC).experts, kOwnedByC);
  EXPECT_TRUE(until([&] { return b.reserved() == reserved_at_b && c.reserved() == reserved_at_c; }))
      << "the memory is given back";
  kill_in_decode(a);
  EXPECT_TRUE(until([&] { return leg(kB).experts + leg(kC).experts == kLayers * kExperts; })) << "and once more";
}

// B stands still when A is lost, so that it is asked to inherit and lost while it does; then C has all.
TEST_F(Heirs, SurvivorLostWhileItInherits_SameTokens) {
  NodeProcess a({"--threads", "1"}), b({"--threads", "1"}), c({"--threads", "1"});
  open({&a, &b, &c});
  expect_same_tokens(kTokens, [&] {
    EXPECT_TRUE(NodeWatch(a.address()).until_rows(100));
    b.kill(SIGSTOP);
    a.kill(SIGKILL);
  });
  ASSERT_TRUE(until([&] { return leg(kC).experts == kLayers * kExperts; }));
  EXPECT_EQ(leg(kB).state, legs::LegState::kLost);
  b.kill(SIGCONT);
  ASSERT_TRUE(until([&] { return leg(kB).state == legs::LegState::kOk; }));
  a.restart();
  ASSERT_TRUE(until(
      [&] { return leg(kA).experts == kOwnedByA && leg(kB).experts == kOwnedByB && leg(kC).experts == kOwnedByC; }));
  expect_same_tokens(kTokens);
}

TEST_F(Heirs, SurvivorWithoutRoom_HostKeepsThem) {
  NodeProcess a({"--threads", "1"});
  std::uint64_t needs = 0;
  {
    NodeProcess b({"--threads", "1"}), c({"--threads", "1"});
    open({&a, &b, &c});
    needs = std::max(b.reserved(), c.reserved());
    engine_.reset();
  }
  const std::vector<std::string> just_enough = {"--threads", "1", "--ram", std::to_string((needs >> 20) + 2) + "M"};
  NodeProcess b(just_enough), c(just_enough);
  open({&a, &b, &c});
  kill_in_decode(a);
  ASSERT_TRUE(until([&] { return leg(kHost).experts == kOwnedByA; }));
  expect_same_tokens(kTokens);
  EXPECT_EQ(leg(kHost).experts, kOwnedByA);
  EXPECT_EQ(leg(kB).experts, kOwnedByB);
  EXPECT_EQ(leg(kC).experts, kOwnedByC);
  a.restart();
  EXPECT_TRUE(until([&] { return leg(kA).experts == kOwnedByA; }));
}

}  // namespace heirs_test
}  // namespace terrace
