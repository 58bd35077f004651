// A sealed connection has a number for so many frames and no more: another one takes its place before, and nobody
// notices. The limit is injected; the real one is 2^32 frames.
#include <gtest/gtest.h>

#include "common/security/random.h"
#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/counted_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"

namespace terrace {
namespace renewal_test {

using test::GateCoordinator;
using test::GateModel;
using test::GateRun;
using test::must;

constexpr std::uint64_t kMostFrames = 48;  // a dozen of them before the end it is near
constexpr unsigned kLanes = 3;

class Renewal : public testing::Test {
 protected:
  Renewal() {
    expected_ = GateCoordinator(model_, model_.share({}, "host=0-31"), model_.slabs.lookup(), model_.kernels)
                    .run(prompt_, 16, kTokens);
  }
  void open() {
    legs::NodeSessionOptions options;
    options.seal = true;
    session_ = must(legs::NodeSession::open(must(legs::make_grpc_node_control(node_.address(), {})), sealed_,
                                            session_model_, options));
    const Status ready = session_->take_share(owners_, 1, [](const legs::ShareProgress&) {});
    ASSERT_TRUE(ready.ok()) << ready.error().text();
  }
  GateRun run(bool with_backstop) {
    GateCoordinator coordinator(model_, owners_, model_.slabs.lookup(), model_.kernels, {&session_->leg()}, 1,
                                with_backstop);
    return coordinator.run(prompt_, 16, kTokens);
  }

  static constexpr std::uint64_t kTokens = 12;
  const GateModel model_;
  const std::vector<std::int32_t> prompt_ = test::corpus_prompt(200);
  transport::TcpTransport tcp_;
  test::CountedTransport counted_{tcp_};
  transport::SealedTransport sealed_{transport::test::borrowed(counted_), nullptr, &security::random_bytes,
                                     kMostFrames};
  test::NodeInProcess node_{tcp_, {.seal = true}};
  const legs::SessionModel session_model_ = model_.session_model(model_.kernels);
  const legs::OwnerTable owners_ = model_.share({node_.address()}, "host=0-3," + node_.address() + "=4-31");
  GateRun expected_;
  std::unique_ptr<legs::NodeSession> session_;
};

// Weights, prompts and decode steps, each over many connections one after the other.
TEST_F(Renewal, ConnectionsNearTheirEnd_ReplacedWithoutALossAndWithTheSameTokens) {
  open();
  const unsigned after_weights = counted_.made();
  EXPECT_GT(after_weights, kLanes) << "slabs of " << model_.kernels.size() << " layers fit one connection";
  EXPECT_EQ(test::difference(expected_, run(false)), std::nullopt);
  EXPECT_GT(counted_.made(), after_weights + 2);
  const legs::LegCounters counters = session_->leg().counters();
  EXPECT_EQ(counters.losses, 0u);
  EXPECT_EQ(counters.refused, 0u);
  EXPECT_EQ(session_->leg().state(), legs::LegState::kOk);
  EXPECT_FALSE(node_.sessions().all().at(0)->ended());
  // Of all connections together: a frame is 80 bytes at the least.
  EXPECT_GT(counters.bytes_sent, (counted_.made() - after_weights) * kMostFrames / 2 * 80);
}

TEST_F(Renewal, NoOtherConnectionToBeHad_TheNodeIsLostAndTheTokensAreTheSame) {
  open();
  counted_.set_most(counted_.made());
  // Batches that are late here are the host's, so that a run may send few.
  for (int i = 0; i < 20 && session_->leg().state() != legs::LegState::kLost; ++i)
    ASSERT_EQ(test::difference(expected_, run(true)), std::nullopt) << "run " << i;
  ASSERT_EQ(session_->leg().state(), legs::LegState::kLost);
  ASSERT_NE(session_->leg().why_out(), nullptr);
  EXPECT_NE(session_->leg().why_out()->text().find("could not be replaced"), std::string::npos)
      << session_->leg().why_out()->text();
}

}  // namespace renewal_test
}  // namespace terrace
