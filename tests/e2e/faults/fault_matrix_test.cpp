// Each cell of the fault matrix: whatever happens to a node, its link or a disk, and whenever, every run gives the
// tokens and logits of a run without any, in bounded time, and nothing stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "tests/e2e/faults/stage.h"

namespace terrace {
namespace fault_matrix_test {

using test::Cell;
using test::FaultKind;
using test::Phase;
using test::Relay;
using test::Stage;

const auto* const kOwnNetwork = test::own_network();

constexpr const char* kNoMemory = "bytes: Cannot allocate memory; it is tried again";

class FaultMatrix : public testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    const std::string lacking = test::lacking(test::needs(GetParam()));
    if (!lacking.empty()) GTEST_SKIP() << lacking;
  }

  static Relay::Point point(Phase phase) {
    using wire::FrameType;
    using wire::Lane;
    if (phase == Phase::kWeights || phase == Phase::kLoad)
      return {Relay::Way::kToNode, FrameType::kSlab, Lane::kWeights, 2};
    if (phase == Phase::kPrompt) return {Relay::Way::kToCoordinator, FrameType::kReply, Lane::kBulk, 1};
    return {Relay::Way::kToCoordinator, FrameType::kReply, Lane::kLatency, 5};
  }

  void expect_right(const test::GateRun& run) { EXPECT_EQ(test::difference(expected_, run), std::nullopt); }

  // Runs while the fault comes at the phase's frame.
  void strike_during(Stage& stage) {
    stage.relay().hold_at(point(GetParam().phase));
    auto struck = std::async(std::launch::async, [&] {
      if (!stage.relay().wait_held()) return false;
      stage.strike(true);
      return true;
    });
    // Whatever throws below: the other thread does not wait on for its frame.
    const std::shared_ptr<Relay> dropped(&stage.relay(), [&](Relay* relay) {
      if (struck.valid()) relay->drop_point();
    });
    // In weights: the node is lost, comes back and wants its slabs again. Elsewhere one run is enough, but on a machine
    // so busy that a late node is left out for a while. A node that is lost while it is loaded ends nothing.
    if (GetParam().phase == Phase::kWeights) stage.lose_node();
    if (GetParam().phase == Phase::kLoad) stage.load();
    while (struck.wait_for(std::chrono::seconds(0)) != std::future_status::ready && !HasFailure())
      expect_right(stage.generate());
    EXPECT_TRUE(struck.get()) << "the frame at which the fault was to come never came";
  }

  // A fault of the link is none of the node's, and what its copy or its memory lacks it gets: once the fault is over,
  // the node takes part again.
  static bool comes_back(FaultKind fault) {
    return fault == FaultKind::kLinkUpAgain || fault == FaultKind::kCorruptFrame ||
           fault == FaultKind::kTruncatedFrame || fault == FaultKind::kWrongHash || fault == FaultKind::kOutOfMemory;
  }
  // The node finds no memory for its share, says so, and the coordinator with it; within the cell's deadline.
  void expect_refusal(Stage& stage) {
    auto starved = std::async(std::launch::async, [&] { return stage.starve(); });
    const std::shared_ptr<Relay> dropped(&stage.relay(), [](Relay* relay) { relay->drop_point(); });
    while (!stage.has_told(kNoMemory) && !HasFailure()) expect_right(stage.generate());
    EXPECT_TRUE(starved.get());
  }
  // Waits for it, within the cell's deadline.
  void expect_node_is_back(Stage& stage) {
    const std::uint64_t before = stage.pairs_of_the_node();
    while (stage.pairs_of_the_node() == before && !HasFailure()) expect_right(stage.generate());
  }

  const test::GateRun expected_ = Stage::expected();
};

INSTANTIATE_TEST_SUITE_P(Faults, FaultMatrix, testing::ValuesIn(test::all_cells()),
                         [](const auto& test) { return name(test.param); });

TEST_P(FaultMatrix, SameTokens) {
  const test::Deadline deadline(name(GetParam()));
  const test::Held before = test::Held::by(::getpid());
  {
    Stage stage(GetParam());
    if (GetParam().phase != Phase::kLoad) {
      stage.load();
      expect_right(stage.generate());
    }
    if (GetParam().phase == Phase::kIdle)
      stage.strike(false);
    else
      strike_during(stage);
    expect_right(stage.generate());
    if (GetParam().fault == FaultKind::kOutOfMemory) expect_refusal(stage);
    stage.mend();
    expect_right(stage.generate());
    if (comes_back(GetParam().fault)) expect_node_is_back(stage);
    stage.expect_fault_was_met();
  }
  EXPECT_THAT(test::children(), testing::IsEmpty());
  EXPECT_THAT(test::left_by(::getpid(), before, test::kCleanUp), testing::IsEmpty());
}

}  // namespace fault_matrix_test
}  // namespace terrace
