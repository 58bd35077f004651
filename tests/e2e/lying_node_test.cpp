// A real node whose answers are changed on their way, with checksums that are right: what a node that computes wrong,
// or lies, looks like from outside. Only an audit can tell.
#include <gtest/gtest.h>

#include "common/base/function_ref.h"
#include "coordinator/app/engine.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/relay.h"

namespace terrace::test {
namespace lying_node_test {

constexpr std::uint64_t kTokens = 24;
const std::vector<std::int32_t> kPrompt = {1611, 825, 261, 509, 14, 408, 295, 261, 438};  // story_start of the vectors

// A coordinator whose way to the node changes one bit of one reply.
struct LiedTo {
  LiedTo(const NodeProcess& node, double audit) : relay(node.address(), node.data_port()) {
    app::ModelOptions options = gate_options();
    options.nodes = {relay.address()};
    options.audit = audit;
    engine = must(app::Engine::open(options, Environment({{"XDG_CACHE_HOME", cache_dir().string()}})));
    relay.hold_at({Relay::Way::kToCoordinator, wire::FrameType::kReply, wire::Lane::kLatency, 12});
    relay.go(Relay::Deed::kPayload);
    run = gate_run(*engine, 512, kPrompt, kTokens);
    EXPECT_TRUE(relay.gone()) << "the reply never came";
  }
  legs::LegState state() const { return run.legs.back().state; }

  Relay relay;
  std::unique_ptr<app::Engine> engine;
  GateRun run;
};

class LyingNode : public ::testing::Test {
 protected:
  // On a busy machine the one reply may be late, and is dropped, changed as it is: then again, a few times.
  std::unique_ptr<LiedTo> lie(double audit, FunctionRef<bool(const LiedTo&)> was_met) {
    std::unique_ptr<LiedTo> lied;
    for (int i = 0; i < 5 && (!lied || !was_met(*lied)); ++i) lied = std::make_unique<LiedTo>(node_, audit);
    return lied;
  }
  static GateRun without_nodes() { return gate_run(gate_options(), kPrompt, kTokens); }

  NodeProcess node_;
};

TEST_F(LyingNode, EveryPairAudited_SameTokensAndTheNodeStaysOut) {
  const GateRun expected = without_nodes();
  const auto lied = lie(1, [&](const LiedTo& now) {
    EXPECT_EQ(difference(expected, now.run), std::nullopt);
    return now.state() == legs::LegState::kWrong;
  });
  const auto& told = lied->run.legs.back();
  EXPECT_EQ(told.state, legs::LegState::kWrong);
  EXPECT_TRUE(told.reason.starts_with(lied->relay.address() + ": computes wrong: its output of expert "))
      << told.reason;
  // It lives and would be taken back, were it only lost.
  EXPECT_TRUE(NodeWatch(node_.address(), {}).until_clean());
  const GateRun after = gate_run(*lied->engine, 512, kPrompt, kTokens);
  EXPECT_EQ(difference(expected, after), std::nullopt);
  EXPECT_EQ(after.legs.back().state, legs::LegState::kWrong);
  EXPECT_EQ(after.legs.back().experts, 0u);
  EXPECT_EQ(lied->engine->board().report().back().counters.rejoins, 0u);
}

// The lie is one: else the test above shows nothing.
TEST_F(LyingNode, WithoutAudits_NobodySeesIt) {
  const GateRun expected = without_nodes();
  const auto lied = lie(0, [&](const LiedTo& now) { return difference(expected, now.run) != std::nullopt; });
  EXPECT_NE(difference(expected, lied->run), std::nullopt);
  EXPECT_NE(lied->state(), legs::LegState::kWrong);
}

}  // namespace lying_node_test
}  // namespace terrace::test
