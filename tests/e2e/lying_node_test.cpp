// A real node whose answers are changed on their way, with checksums that are right: what a node that computes wrong,
// or lies, looks like from outside. Only an audit can tell.
#include <gtest/gtest.h>

#include "coordinator/app/engine.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/relay.h"

namespace terrace::test {
namespace lying_node_test {

constexpr std::uint64_t kTokens = 24;
const std::vector<std::int32_t> kPrompt = {1611, 825, 261, 509, 14, 408, 295, 261, 438};  // story_start of the vectors

class LyingNode : public ::testing::Test {
 protected:
  std::unique_ptr<app::Engine> open(double audit) const {
    app::ModelOptions options = gate_options();
    options.nodes = {relay_.address()};
    options.audit = audit;
    return must(app::Engine::open(options, Environment({{"XDG_CACHE_HOME", cache_dir().string()}})));
  }
  // One run, in which one bit of one reply is the other one.
  GateRun run_with_a_lie(app::Engine& engine) {
    relay_.hold_at({Relay::Way::kToCoordinator, wire::FrameType::kReply, wire::Lane::kLatency, 12});
    relay_.go(Relay::Deed::kPayload);
    const GateRun run = gate_run(engine, 512, kPrompt, kTokens);
    EXPECT_TRUE(relay_.gone()) << "the reply never came";
    return run;
  }
  static GateRun without_nodes() { return gate_run(gate_options(), kPrompt, kTokens); }

  NodeProcess node_;
  Relay relay_{node_.address(), node_.data_port()};
};

TEST_F(LyingNode, EveryPairAudited_SameTokensAndTheNodeStaysOut) {
  const auto engine = open(1);
  const GateRun expected = without_nodes(), run = run_with_a_lie(*engine);
  EXPECT_EQ(difference(expected, run), std::nullopt);
  EXPECT_EQ(run.legs.back().state, legs::LegState::kWrong);
  EXPECT_TRUE(run.legs.back().reason.starts_with(relay_.address() + ": computes wrong: its output of expert "))
      << run.legs.back().reason;
  // It lives and would be taken back, were it only lost.
  EXPECT_TRUE(NodeWatch(node_.address(), {}).until_clean());
  const GateRun after = gate_run(*engine, 512, kPrompt, kTokens);
  EXPECT_EQ(difference(expected, after), std::nullopt);
  EXPECT_EQ(after.legs.back().state, legs::LegState::kWrong);
  EXPECT_EQ(after.legs.back().experts, 0u);
  EXPECT_EQ(engine->board().report().back().counters.rejoins, 0u);
}

// The lie is one: else the test above shows nothing.
TEST_F(LyingNode, WithoutAudits_NobodySeesIt) {
  const auto engine = open(0);
  const GateRun run = run_with_a_lie(*engine);
  EXPECT_NE(difference(without_nodes(), run), std::nullopt);
  EXPECT_EQ(run.legs.back().state, legs::LegState::kOk);
}

}  // namespace lying_node_test
}  // namespace terrace::test
