// How sessions and connections end at the data server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/unit/tier_node/service/data_server_testing.h"
#include "tier_node/service/data_server.h"

namespace terrace::node {
namespace data_server_end_test {

using test::collect;
using test::DataServerTest;
using test::error_of;
using test::expect_serves;
using test::kSeed;
using test::LaneClient;
using test::must;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using ::testing::HasSubstr;

// ---- ends -----------------------------------------------------------------------------------------------------------

TEST_F(DataServerTest, SlabsOverTheWeightsLane_BatchEqualsTheFiles) {
  NodeSettings settings;
  settings.own_model = false;
  settings.sessions.limits.weight_frames = 2;
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.open();
  must(node.sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  LaneClient weights = node.connect(*session, wire::Lane::kWeights), client = node.connect(*session, wire::Lane::kBulk);
  weights.greet();
  client.greet();
  const AssignmentRef assignment = must(session->begin_assign(1, model_.everything()));
  node.loader().start(session, assignment);
  std::uint64_t sent = 0;
  for (const ShareItem& item : assignment->wait(std::chrono::seconds(20)).wanted) {
    const std::span<const std::byte> slab = model_.slab(item.layer, item.expert);
    for (std::size_t at = 0; at < slab.size(); at += 30'000) {
      while (weights.credit_frames() <= sent) ASSERT_TRUE(weights.receive());
      weights.send_piece({item.layer, item.expert, at, slab.size()},
                         slab.subspan(at, std::min<std::size_t>(30'000, slab.size() - at)));
      ++sent;
    }
  }
  AssignProgress progress = assignment->wait(std::chrono::seconds(20));
  ASSERT_TRUE(progress.ready);
  const TestBatch batch(model_, 1, 7, 4, kSeed);
  const std::uint64_t sequence = client.send_batch(batch, 1);
  EXPECT_EQ(collect(client, batch, *session, sequence), batch.expected(model_));
}

// What was on its way is lost, and the coordinator reads nothing but answers to Assign meanwhile.
TEST_F(DataServerTest, WeightsConnectionEndsWhileSlabsAreWanted_AssignEndsAndTheSessionGoesOn) {
  NodeSettings settings;
  settings.own_model = false;
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.open();
  must(node.sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  client.greet();
  AssignmentRef assignment;
  {
    LaneClient weights = node.connect(*session, wire::Lane::kWeights);
    weights.greet();
    assignment = must(session->begin_assign(1, model_.everything()));
    node.loader().start(session, assignment);
    ASSERT_FALSE(assignment->wait(std::chrono::seconds(20)).wanted.empty());
  }
  const AssignProgress progress = assignment->wait(std::chrono::seconds(20));
  ASSERT_TRUE(progress.failed);
  EXPECT_EQ(progress.failed->code(), ErrorCode::kBusy);
  EXPECT_THAT(progress.failed->text(), HasSubstr("a weights connection ended"));
  EXPECT_EQ(session->pending_assign(), nullptr) << "a further Assign may come";
  EXPECT_FALSE(session->ended());
}

TEST_F(DataServerTest, SessionClosedByWish_GoodbyeWithoutError) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  must(node.sessions().close(session->id()));
  EXPECT_EQ(client.receive_answer()->type(), wire::FrameType::kClose);
  EXPECT_TRUE(client.drained());
}

// ---- the end of the last connection. No lease ends in these.

NodeSettings endless_lease() {
  NodeSettings settings;
  settings.sessions.lease = std::chrono::hours(24);
  return settings;
}

// A client that a test can drop.
std::unique_ptr<LaneClient> dial(NodeParts& node, const Session& session, wire::Lane lane) {
  return std::unique_ptr<LaneClient>(new LaneClient(node.connect(session, lane)));
}

bool ends(const Session& session) {
  const auto patience = std::chrono::steady_clock::now() + test::kPatience;
  while (!session.ended() && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return session.ended();
}

TEST_F(DataServerTest, LastConnectionLost_EndsTheSessionAndItsMemoryIsFreeLongBeforeTheLease) {
  NodeParts node(model_, endless_lease());
  node.serve();
  const SessionRef session = node.ready_session(), other = node.ready_session();
  LaneClient good = node.connect(*other, wire::Lane::kLatency);
  good.greet();
  auto latency = dial(node, *session, wire::Lane::kLatency);
  auto bulk = dial(node, *session, wire::Lane::kBulk);
  latency->greet();
  bulk->greet();
  const std::uint64_t reserved = node.store().usage().reserved;

  latency.reset();
  expect_serves(model_, *bulk, *session);  // one is left
  for (int i = 0; i < 2; ++i) {            // behind the second the node has seen that the first lane is gone
    bulk->send_plain(wire::FrameType::kPing, 100);
    EXPECT_EQ(bulk->receive_answer()->type(), wire::FrameType::kPong);
  }
  EXPECT_FALSE(session->ended());
  latency = dial(node, *session, wire::Lane::kLatency);  // and may come back
  latency->greet();
  expect_serves(model_, *latency, *session);

  latency.reset();
  bulk.reset();
  ASSERT_TRUE(ends(*session));
  EXPECT_THAT(session->end_reason().text(), HasSubstr("last data connection is gone"));
  EXPECT_FALSE(node.sessions().find(session->id()).ok());
  // The session is told as ended first, and then let go.
  const auto patience = std::chrono::steady_clock::now() + test::kPatience;
  while (node.store().usage().reserved >= reserved && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(node.store().usage().reserved, reserved);
  expect_serves(model_, good, *other);
}

TEST_F(DataServerTest, LastConnectionLostDuringABatch_MemoryIsFreeOnceItIsDone) {
  NodeParts node(model_, endless_lease());
  node.serve();
  const SessionRef session = node.ready_session();
  auto client = dial(node, *session, wire::Lane::kBulk);
  client->greet();
  node.gate().close();
  client->send_batch(TestBatch(model_, 0, 512, 8, kSeed), 1, wire::Priority::kPrompt);
  node.gate().await_standstill();
  client.reset();
  ASSERT_TRUE(ends(*session));
  EXPECT_GT(node.store().usage().reserved, 0u) << "the batch in hand still reads its slabs";
  node.gate().open();
  node.stop_server();
  EXPECT_EQ(node.store().usage().reserved, 0u);
}

TEST_F(DataServerTest, LastConnectionSaysGoodbye_IsACloseByWish) {
  NodeParts node(model_, endless_lease());
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient latency = node.connect(*session, wire::Lane::kLatency), bulk = node.connect(*session, wire::Lane::kBulk);
  latency.greet();
  bulk.greet();
  latency.send_plain(wire::FrameType::kClose, 100);
  EXPECT_TRUE(latency.drained());
  EXPECT_FALSE(session->ended());
  bulk.send_plain(wire::FrameType::kClose, 100);
  ASSERT_TRUE(ends(*session));
  EXPECT_TRUE(session->closed_by_wish());
}

// Between OpenSession and the first hello, and while an Assign reads the node's own file, a session has none.
TEST_F(DataServerTest, SessionThatNeverHadAConnection_LivesOn) {
  NodeParts node(model_, endless_lease());
  node.serve();
  const SessionRef waits = node.ready_session(), goes = node.ready_session();
  auto client = dial(node, *goes, wire::Lane::kLatency);
  client->greet();
  client.reset();
  ASSERT_TRUE(ends(*goes));
  EXPECT_FALSE(waits->ended());
  LaneClient late = node.connect(*waits, wire::Lane::kLatency);
  late.greet();
  expect_serves(model_, late, *waits);
}

TEST_F(DataServerTest, SessionEnds_EveryLaneHearsWhyAndMemoryIsFreeOnceTheBatchInHandIsDone) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient a = node.connect(*session, wire::Lane::kLatency), b = node.connect(*session, wire::Lane::kBulk);
  a.greet();
  b.greet();
  node.gate().close();
  b.send_batch(TestBatch(model_, 0, 512, 8, kSeed), 1, wire::Priority::kPrompt);
  node.gate().await_standstill();
  session->end(Error(ErrorCode::kDeadline, "the lease is over"));
  for (LaneClient* client : {&a, &b}) {
    EXPECT_EQ(error_of(client->receive_answer()).text, "the lease is over");
    EXPECT_EQ(client->receive_answer()->type(), wire::FrameType::kClose);
  }
  EXPECT_GT(node.store().usage().reserved, 0u) << "the batch in hand still reads its slabs";
  node.gate().open();
  EXPECT_TRUE(a.drained() && b.drained());
  node.stop_server();  // waits for the batch
  EXPECT_EQ(node.store().usage().reserved, 0u);
}

TEST_F(DataServerTest, Stop_EveryConnectionHearsIt) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  std::thread stopper([&] { node.stop_server(); });
  EXPECT_THAT(error_of(client.receive_answer()).text, HasSubstr("shutting down"));
  EXPECT_TRUE(client.drained());
  stopper.join();
}

}  // namespace data_server_end_test
}  // namespace terrace::node
