#include "tier_node/service/data_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "common/transport/tcp/tcp.h"
#include "tests/unit/common/threads/no_threads.h"
#include "tests/unit/tier_node/service/data_server_testing.h"

namespace terrace::node {
namespace data_server_test {

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
using test::TinyModel;
using ::testing::HasSubstr;

// ---- the start ------------------------------------------------------------------------------------------------------

TEST_F(DataServerTest, NoThread_ErrorNamesIt) {
  for (const bool weights_apart : {true, false}) {
    NodeSettings settings;
    settings.weights_apart = weights_apart;
    NodeParts node(model_, settings);
    transport::LoopbackTransport transport;
    const terrace::test::NoThreads limit;
    const auto server = node.start_server(transport, "node:9001");
    ASSERT_FALSE(server.ok());
    EXPECT_THAT(server.error().text(), HasSubstr(weights_apart ? "thread terrace-slabs" : "thread terrace-compute"));
  }
}

// ---- batches --------------------------------------------------------------------------------------------------------

class BatchTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BatchTest, SumsOfEveryRange_EqualTheLocalExecutor) {
  const TinyModel model(GetParam());
  NodeParts node(model);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  client.greet();
  for (const std::uint32_t layer : {0u, 1u}) {
    TestBatch batch(model, layer, 23, 2, kSeed + layer);
    batch.ranges = {{0, 1}, {1, 9}, {10, 13}};
    const std::uint64_t sequence = client.send_batch(batch, 1, wire::Priority::kPrompt);
    EXPECT_EQ(collect(client, batch, *session, sequence), batch.expected(model)) << "layer " << layer;
  }
  EXPECT_EQ(session->counters().batches, 2u);
  EXPECT_EQ(session->counters().rows, 46u);
  EXPECT_EQ(session->counters().pairs, 92u);
}

TEST_P(BatchTest, Slots_EqualTheLocalExecutorInBatchOrder) {
  const TinyModel model(GetParam());
  NodeParts node(model);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  const TestBatch batch(model, 1, 5, 3, kSeed);
  client.send_batch(batch, 1, wire::Priority::kDecode, wire::ReplyForm::kSlots);
  const auto reply = client.receive_answer();
  ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
  const wire::ReplyView view = must(wire::read_reply(reply->frame, session->limits().batch));
  EXPECT_EQ(std::vector<float>(view.slots.begin(), view.slots.end()), batch.expected_slots(model));
}

INSTANTIATE_TEST_SUITE_P(Models, BatchTest, ::testing::Values("tiny-q8_0.gguf", "tiny-mix.gguf"),
                         [](const auto& test) { return test.param[5] == 'q' ? "Q8_0" : "Mix"; });

TEST_F(DataServerTest, RowsWithoutPairs_AreNotAnsweredAndRangesWithoutAreEmpty) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  client.greet();
  TestBatch batch(model_, 0, 6, 2, kSeed);
  std::erase_if(batch.pairs, [](const wire::Pair& pair) { return pair.row == 1 || pair.row >= 4; });
  batch.ranges = {{0, 4}, {4, 2}};
  client.send_batch(batch, 1);
  const auto first = client.receive_answer(), second = client.receive_answer();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(must(wire::read_reply(first->frame, session->limits().batch)).info.n_rows, 3u);
  const wire::ReplyView empty = must(wire::read_reply(second->frame, session->limits().batch));
  EXPECT_EQ(empty.info.n_rows, 0u);
  EXPECT_EQ(empty.info.n_pairs, 0u);
  EXPECT_TRUE(empty.sums.empty());
}

TEST_F(DataServerTest, OutputOutOfTheFixedPointRange_RowIsListedAndOthersStand) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  TestBatch batch(model_, 0, 4, 2, kSeed);
  std::vector<std::int64_t> expected = batch.expected(model_);
  for (wire::Pair& pair : batch.pairs)
    if (pair.row == 2) pair.weight = std::numeric_limits<float>::max();
  client.send_batch(batch, 1);
  const auto reply = client.receive_answer();
  ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
  const wire::ReplyView view = must(wire::read_reply(reply->frame, session->limits().batch));
  ASSERT_EQ(view.failed_rows.size(), 1u);
  EXPECT_EQ(view.failed_rows[0], 2);
  std::vector<std::int64_t> sums(expected.size());
  test::add_reply_sums(*reply, batch, *session, sums);
  std::fill_n(expected.begin() + 2 * batch.d_model(), batch.d_model(), 0);
  EXPECT_EQ(sums, expected);
}

TEST_F(DataServerTest, StaleEpoch_ErrorNamesBothAndTheLaneGoesOn) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  node.assign(session, 2, {{0, 0}});
  must(session->forget(1));
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  const TestBatch batch(model_, 0, 1, 2, kSeed);
  const std::uint64_t sequence = client.send_batch(batch, 1);
  const auto answer = client.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kStaleEpoch);
  EXPECT_THAT(error_of(answer).text, HasSubstr("epoch 1"));
  EXPECT_THAT(error_of(answer).text, HasSubstr("holds 2"));
  EXPECT_EQ(answer->header().sequence, sequence);
  EXPECT_EQ(answer->header().credit_frames, 1u) << "the credit comes back with it";
  client.send_plain(wire::FrameType::kPing, 99);
  EXPECT_EQ(client.receive_answer()->type(), wire::FrameType::kPong);
}

TEST_F(DataServerTest, ExpertOutsideTheShare_RefusedByName) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  node.assign(session, 2, {{0, 0}, {0, 1}});
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  client.send_batch(TestBatch(model_, 0, 1, 8, kSeed), 2);
  const auto answer = client.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kRefused);
  EXPECT_THAT(error_of(answer).text, HasSubstr("expert 2 of layer 0"));
  expect_serves(model_, client, *session);
}

TEST_F(DataServerTest, SlotsBeyondWhatIsSetAside_RefusedBeforeComputing) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  client.greet();
  node.gate().close();
  client.send_batch(TestBatch(model_, 0, 512, 8, kSeed), 1, wire::Priority::kPrompt, wire::ReplyForm::kSlots);
  const auto answer = client.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kRefused);
  EXPECT_THAT(error_of(answer).text, HasSubstr("the slots of 4096 pairs"));
  EXPECT_EQ(answer->header().credit_frames, 1u);
  node.gate().open();
  expect_serves(model_, client, *session);
}

TEST_F(DataServerTest, RangeWhoseReplyMayBeWiderThanThePeerTakes_RefusedBeforeComputing) {
  NodeParts node(model_);
  node.serve();
  OpenRequest request = node.open_request();
  request.limits.largest_frame = 64 << 10;
  const SessionRef session = must(node.sessions().open(request)).session;
  must(node.sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  node.assign(session, 1, model_.everything());
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  client.greet();
  node.gate().close();
  TestBatch batch(model_, 0, 128, 2, kSeed);
  batch.ranges = {{0, 4}, {4, 124}};
  client.send_batch(batch, 1);
  EXPECT_THAT(error_of(client.receive_answer()).text, HasSubstr("range 1 of batch"));
  node.gate().open();
  expect_serves(model_, client, *session);
}

TEST_F(DataServerTest, RepliesLeftUnread_CutOffWhenTheyAreMoreThanTheCreditAccountsFor) {
  transport::TcpTransport tcp;
  NodeSettings settings;
  settings.sessions.lease = std::chrono::hours(1);
  NodeParts node(model_, settings);
  node.serve(tcp, "127.0.0.1:0");
  const SessionRef session = node.ready_session(), other = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kBulk), good = node.connect(*other, wire::Lane::kLatency);
  client.greet();
  good.greet();
  const TestBatch batch(model_, 0, 512, 2, kSeed);  // replies of a megabyte
  for (std::uint64_t n = 1; n <= 64 && !client.left_by_peer(); ++n) {
    client.send_batch(batch, 1, wire::Priority::kPrompt, wire::ReplyForm::kSlots);
    const auto end = std::chrono::steady_clock::now() + test::kPatience;
    while (session->counters().batches < n && !client.left_by_peer() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(session->counters().batches, 64u);
  EXPECT_TRUE(client.drained());
  const auto end = std::chrono::steady_clock::now() + test::kPatience;
  while (!session->ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(session->ended());
  EXPECT_EQ(session->end_reason().code(), ErrorCode::kRefused);
  EXPECT_THAT(session->end_reason().text(), HasSubstr("lane bulk: it does not read what it is sent"));
  expect_serves(model_, good, *other);
}

TEST(FramePool, FramesBeyondItsBound_GiveTheirMemoryBack) {
  FramePool pool;
  for (int i = 0; i < 4; ++i) {
    OutFramePtr frame = std::make_unique<OutFrame>();
    frame->data.resize(FramePool::kMostKept / 3);
    pool.give(std::move(frame));
  }
  EXPECT_EQ(pool.kept_bytes(), 3 * (FramePool::kMostKept / 3));
  OutFramePtr a = pool.take(), b = pool.take();
  EXPECT_EQ(pool.kept_bytes(), 2 * (FramePool::kMostKept / 3));
}

TEST_F(DataServerTest, Ping_PongWithTheSameSequence) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kWeights);
  client.greet();
  client.send_plain(wire::FrameType::kPing, 12345);
  const auto pong = client.receive_answer();
  ASSERT_TRUE(pong);
  EXPECT_EQ(pong->type(), wire::FrameType::kPong);
  EXPECT_EQ(pong->header().sequence, 12345u);
}

// ---- order ----------------------------------------------------------------------------------------------------------

TEST_F(DataServerTest, CancelledWhileQueued_NoReplyAndTheCreditComesBack) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  const wire::Welcome welcome = client.greet();
  const TestBatch batch(model_, 0, 2, 2, kSeed);
  node.gate().close();
  const std::uint64_t first = client.send_batch(batch, 1);
  node.gate().await_standstill();
  const std::uint64_t second = client.send_batch(batch, 1), third = client.send_batch(batch, 1);
  client.send_plain(wire::FrameType::kCancel, second);
  client.send_plain(wire::FrameType::kPing, 7);
  ASSERT_EQ(client.receive_answer()->type(), wire::FrameType::kPong);
  node.gate().open();
  EXPECT_EQ(collect(client, batch, *session, first), batch.expected(model_));
  EXPECT_EQ(collect(client, batch, *session, third), batch.expected(model_));
  while (client.credit_frames() < welcome.credit_frames + 3) ASSERT_TRUE(client.receive());
}

// ---- credit ---------------------------------------------------------------------------------------------------------

TEST_F(DataServerTest, OneFrameOfCredit_EachReplyGivesTheNext) {
  NodeSettings settings;
  settings.sessions.limits.batch_frames = 1;
  settings.sessions.limits.batch_windows = 1;
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kBulk);
  EXPECT_EQ(client.greet().credit_frames, 1u);
  TestBatch batch(model_, 0, 64, 2, kSeed);
  batch.ranges = {{0, 32}, {32, 32}};
  const auto expected = batch.expected(model_);
  for (std::uint64_t frames = 1; frames <= 5; ++frames) {
    const std::uint64_t sequence = client.send_batch(batch, 1, wire::Priority::kPrompt);
    EXPECT_EQ(collect(client, batch, *session, sequence), expected);
    EXPECT_EQ(client.credit_frames(), frames + 1) << "with the last range's reply, not later";
    EXPECT_EQ(client.credit_bytes(), session->limits().batches.bytes + frames * client.last_frame_bytes());
  }
}

TEST_F(DataServerTest, MoreThanTheCredit_EndsThatSessionOnly) {
  NodeSettings settings;
  settings.sessions.limits.batch_frames = 2;
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef greedy = node.ready_session(), other = node.ready_session();
  LaneClient client = node.connect(*greedy, wire::Lane::kLatency), good = node.connect(*other, wire::Lane::kLatency);
  client.greet();
  good.greet();
  const TestBatch batch(model_, 0, 2, 2, kSeed);
  node.gate().close();
  for (int i = 0; i < 3; ++i) client.send_batch(batch, 1);
  const auto answer = client.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kRefused);
  EXPECT_THAT(error_of(answer).text, HasSubstr("no credit"));
  EXPECT_EQ(answer->header().sequence, 0u);
  EXPECT_EQ(client.receive_answer()->type(), wire::FrameType::kClose);
  node.gate().open();
  EXPECT_TRUE(client.drained());
  EXPECT_TRUE(greedy->ended());
  expect_serves(model_, good, *other);
}

// ---- who gets in ----------------------------------------------------------------------------------------------------

TEST_F(DataServerTest, WrongKeyOrUnknownSession_TheSameRefusal) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  for (const bool wrong_key : {true, false}) {
    transport::LinkKey key = node.link_key(*session, wire::Lane::kLatency);
    if (wrong_key) key.key.writable()[31] ^= std::byte{1};
    if (!wrong_key) key.session ^= 1;
    LaneClient client = node.connect(*session, key);
    client.say_hello();
    const wire::ErrorMessage refusal = client.last_words();
    EXPECT_EQ(refusal.code, ErrorCode::kRefused);
    EXPECT_THAT(refusal.text, HasSubstr(": no session of this node has this id and key"));
    EXPECT_TRUE(client.drained());
  }
  EXPECT_FALSE(session->ended()) << "a stranger must not end it";
}

TEST_F(DataServerTest, SecondConnectionOfALane_RefusedAndTheFirstGoesOn) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient first = node.connect(*session, wire::Lane::kLatency),
             second = node.connect(*session, wire::Lane::kLatency);
  first.greet();
  second.say_hello();
  EXPECT_THAT(error_of(second.receive_answer()).text, HasSubstr("connected already"));
  expect_serves(model_, first, *session);
}

TEST_F(DataServerTest, SeveralSocketsOfALane_EachServesByItsOwnGrant_AndNoOtherIsTaken) {
  NodeParts node(model_);
  node.serve();
  OpenRequest request = node.open_request();
  request.limits.sockets = 2;
  const SessionRef session = node.ready_session(request);
  const SessionLimits& limits = session->limits();
  ASSERT_EQ(limits.batch.sockets, 2u);
  EXPECT_LE(limits.staging_bytes(), node.open()->limits().staging_bytes()) << "more sockets take no more memory";
  const auto key = [&](wire::Lane lane, std::uint32_t socket) {
    transport::LinkKey of_socket = node.link_key(*session, lane);
    of_socket.socket_index = socket;
    return of_socket;
  };
  LaneClient first = node.connect(*session, key(wire::Lane::kBulk, 0));
  LaneClient second = node.connect(*session, key(wire::Lane::kBulk, 1));
  for (LaneClient* client : {&first, &second}) {
    const wire::Welcome welcome = client->greet();
    EXPECT_EQ(welcome.credit_frames, limits.bulk.frames);
    EXPECT_EQ(welcome.credit_bytes, limits.bulk.bytes);
    EXPECT_GE(welcome.largest_frame, limits.largest_batch_frame);
  }
  expect_serves(model_, first, *session);
  expect_serves(model_, second, *session);
  const auto expect_refused = [&](wire::Lane lane, std::uint32_t socket, const char* why) {
    LaneClient refused = node.connect(*session, key(lane, socket));
    refused.say_hello();
    EXPECT_THAT(error_of(refused.receive_answer()).text, HasSubstr(why));
  };
  expect_refused(wire::Lane::kBulk, 1, "connected already");
  expect_refused(wire::Lane::kBulk, 2, "has 2 of it");
  expect_refused(wire::Lane::kLatency, 1, "has 1 of it");
  expect_serves(model_, first, *session);
}

// A connection near its last frame is replaced: a goodbye, then the same lane and socket again.
TEST_F(DataServerTest, SameSocketAfterAGoodbye_IsTaken) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient bulk = node.connect(*session, wire::Lane::kBulk);
  bulk.greet();
  for (int i = 0; i < 3; ++i) {
    LaneClient latency = node.connect(*session, wire::Lane::kLatency);
    latency.greet();
    expect_serves(model_, latency, *session);
    latency.send_plain(wire::FrameType::kClose, 0);
    EXPECT_TRUE(latency.receive_answer().has_value()) << "the node says goodbye, too";
  }
  expect_serves(model_, bulk, *session);
}

TEST_F(DataServerTest, MuteConnection_DroppedAtItsDeadline) {
  NodeSettings settings;
  settings.data.hello_timeout = std::chrono::milliseconds(50);
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient mute = node.connect(*session, wire::Lane::kLatency);
  const auto answer = mute.receive_answer();
  EXPECT_EQ(error_of(answer).code, ErrorCode::kDeadline);
  EXPECT_THAT(error_of(answer).text, HasSubstr("no hello"));
  EXPECT_TRUE(mute.drained());
}

TEST_F(DataServerTest, ManyMuteConnections_OldestMakeRoomAndAnHonestOneGetsIn) {
  NodeSettings settings;
  settings.data.max_strangers = 4;
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.ready_session();
  std::vector<std::unique_ptr<LaneClient>> mute;
  for (int i = 0; i < 12; ++i) mute.emplace_back(new LaneClient(node.connect(*session, wire::Lane::kLatency)));
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  EXPECT_EQ(mute.front()->last_words().code, ErrorCode::kBusy);
  expect_serves(model_, client, *session);
}

TEST_F(DataServerTest, RefusedConnectionsThatStay_OldestGoAndAnHonestOneGetsIn) {
  NodeSettings settings;
  settings.data.max_strangers = 4;
  settings.data.hello_timeout = settings.data.linger = std::chrono::hours(1);
  NodeParts node(model_, settings);
  node.serve();
  const SessionRef session = node.ready_session();
  std::vector<std::unique_ptr<LaneClient>> refused;
  for (int i = 0; i < 12; ++i) {
    refused.emplace_back(new LaneClient(node.connect(*session, wire::Lane::kLatency)));
    refused.back()->set_largest_frame(wire::kHeaderBytes);  // its key is right
    refused.back()->say_hello();
    EXPECT_EQ(error_of(refused.back()->receive_answer()).code, ErrorCode::kRefused);
  }
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_TRUE(refused[i]->drained()) << "connection " << i << " is kept for an hour";
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  expect_serves(model_, client, *session);
}

}  // namespace data_server_test
}  // namespace terrace::node
