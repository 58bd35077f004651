// The weights lanes have a thread of their own: what it does holds up no decode batch, and the session ends as if all
// its connections lay with one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/transport/forwarding_connection.h"
#include "tests/unit/tier_node/service/data_server_testing.h"
#include "tier_node/session/open_connections.h"

namespace terrace::node {
namespace weights_thread_test {

using test::collect;
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

// Whoever passes while it is closed waits until it is opened.
class Gate {
 public:
  void close() { set(true); }
  void open() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !closed_; });
    --waiting_;
  }
  void await_standstill() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ && waiting_ > 0; });
  }

 private:
  void set(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int waiting_ = 0;
};

// Hands on what the inner connection has; who reads a piece of a slab stands at the gate with it.
class SlowPieces final : public transport::ForwardingConnection {
 public:
  SlowPieces(std::unique_ptr<Connection> inner, Gate& gate) : ForwardingConnection(std::move(inner)), gate_(gate) {}
  std::size_t poll(std::span<transport::Event> out) override {
    const std::size_t n = inner_->poll(out);
    for (const transport::Event& event : out.first(n)) {
      if (event.kind != transport::Event::Kind::kReceived) continue;
      const auto frame = wire::decode_frame(event.frame);
      if (frame.ok() && frame->header.type == wire::FrameType::kSlab) gate_.pass();
    }
    return n;
  }

 private:
  Gate& gate_;
};

class SlowPiecesListener final : public transport::Listener {
 public:
  SlowPiecesListener(std::unique_ptr<Listener> inner, Gate& gate) : inner_(std::move(inner)), gate_(gate) {}
  Result<std::unique_ptr<transport::Connection>> accept() override {
    TERRACE_ASSIGN_OR_RETURN(auto accepted, inner_->accept());
    if (!accepted) return std::unique_ptr<transport::Connection>();
    return std::unique_ptr<transport::Connection>(std::make_unique<SlowPieces>(std::move(accepted), gate_));
  }
  int wait_fd() override { return inner_->wait_fd(); }
  std::string address() const override { return inner_->address(); }
  std::uint16_t port() const override { return inner_->port(); }

 private:
  const std::unique_ptr<Listener> inner_;
  Gate& gate_;
};

class SlowPiecesTransport final : public transport::Transport {
 public:
  SlowPiecesTransport(transport::Transport& inner, Gate& gate) : inner_(inner), gate_(gate) {}
  Result<std::unique_ptr<transport::Listener>> listen(const std::string& address,
                                                      const transport::Options& options) override {
    TERRACE_ASSIGN_OR_RETURN(auto listener, inner_.listen(address, options));
    return std::unique_ptr<transport::Listener>(std::make_unique<SlowPiecesListener>(std::move(listener), gate_));
  }
  Result<std::unique_ptr<transport::Connection>> connect(const std::string& address, const transport::Options& options,
                                                         std::chrono::milliseconds timeout) override {
    return inner_.connect(address, options, timeout);
  }
  const char* name() const override { return inner_.name(); }

 private:
  transport::Transport& inner_;
  Gate& gate_;
};

class WeightsThreadTest : public ::testing::Test {
 protected:
  WeightsThreadTest() : node_(model_, endless_lease()) {}
  static NodeSettings endless_lease() {
    NodeSettings settings;
    settings.sessions.lease = std::chrono::hours(24);
    settings.computes_here = true;
    return settings;
  }
  std::unique_ptr<LaneClient> greeted(const Session& session, wire::Lane lane) {
    std::unique_ptr<LaneClient> client(new LaneClient(node_.connect(session, lane)));
    client->greet();
    return client;
  }
  void send_piece(LaneClient& weights) {
    weights.send_piece({0, 0, 0, model_.slab(0, 0).size()}, std::span(model_.slab(0, 0)).first(1024));
  }
  static bool ends(const Session& session) {
    const auto patience = std::chrono::steady_clock::now() + test::kPatience;
    while (!session.ended() && std::chrono::steady_clock::now() < patience)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return session.ended();
  }

  const TinyModel model_;
  Gate gate_;  // of the pieces
  NodeParts node_;
};

// Whatever a piece costs to be read, opened and handed on: its thread stands in the middle of it.
TEST_F(WeightsThreadTest, PieceIsBeingRead_DecodeBatchesAndPingsAreAnsweredAndSessionsOpen) {
  transport::LoopbackTransport loopback;
  transport::SealedTransport proving(transport::test::borrowed(loopback), data_keys(node_.sessions()));
  SlowPiecesTransport slow(proving, gate_);
  node_.serve_as_it_is(slow, "node:9001");
  const SessionRef session = node_.ready_session();
  const auto latency = greeted(*session, wire::Lane::kLatency), weights = greeted(*session, wire::Lane::kWeights);
  gate_.close();
  send_piece(*weights);
  gate_.await_standstill();
  for (int i = 0; i < 3; ++i) expect_serves(model_, *latency, *session);
  latency->send_plain(wire::FrameType::kPing, 7);
  EXPECT_EQ(latency->receive_answer()->type(), wire::FrameType::kPong);
  const SessionRef other = node_.ready_session();
  expect_serves(model_, *greeted(*other, wire::Lane::kLatency), *other);
  gate_.open();
  const std::uint64_t granted = session->limits().weights.frames;
  while (weights->credit_frames() < granted + 1) ASSERT_TRUE(weights->receive());
}

// The other way round: the thread of decode batches stands in the middle of one.
TEST_F(WeightsThreadTest, DecodeBatchIsBeingComputed_PiecesAreTakenAndPingsOfTheirLaneAnswered) {
  node_.serve();
  const SessionRef session = node_.ready_session();
  const auto latency = greeted(*session, wire::Lane::kLatency), weights = greeted(*session, wire::Lane::kWeights);
  node_.gate().close();
  const TestBatch batch(model_, 0, 1, 2, kSeed);
  const std::uint64_t sequence = latency->send_batch(batch, 1);
  node_.gate().await_standstill();
  send_piece(*weights);
  while (weights->credit_frames() < session->limits().weights.frames + 1) ASSERT_TRUE(weights->receive());
  weights->send_plain(wire::FrameType::kPing, 7);
  EXPECT_EQ(weights->receive_answer()->type(), wire::FrameType::kPong);
  node_.gate().open();
  EXPECT_EQ(collect(*latency, batch, *session, sequence), batch.expected(model_));
}

TEST_F(WeightsThreadTest, SecondHelloOfTheLane_IsRefusedUntilTheFirstHasLeft) {
  node_.serve();
  const SessionRef session = node_.ready_session();
  const auto latency = greeted(*session, wire::Lane::kLatency);
  for (int round = 0; round < 20; ++round) {
    const auto weights = greeted(*session, wire::Lane::kWeights);
    LaneClient second = node_.connect(*session, wire::Lane::kWeights);
    second.say_hello();
    EXPECT_THAT(second.last_words().text,
                HasSubstr("lane weights (socket 0) of session 1 of test is connected already"));
    weights->send_plain(wire::FrameType::kClose, 100);
    EXPECT_EQ(weights->receive_answer()->type(), wire::FrameType::kClose);  // its place is free when this is here
  }
  expect_serves(model_, *latency, *session);
}

TEST_F(WeightsThreadTest, BatchOnTheLane_EndsThatSessionAlone) {
  node_.serve();
  const SessionRef session = node_.ready_session(), other = node_.ready_session();
  const auto latency = greeted(*session, wire::Lane::kLatency), weights = greeted(*session, wire::Lane::kWeights);
  const auto good = greeted(*other, wire::Lane::kLatency), good_weights = greeted(*other, wire::Lane::kWeights);
  weights->send_batch(TestBatch(model_, 0, 1, 2, kSeed), 1);
  for (LaneClient* client : {weights.get(), latency.get()})
    EXPECT_THAT(error_of(client->receive_answer()).text, HasSubstr("a batch came on the weights lane"));
  EXPECT_TRUE(session->ended());
  expect_serves(model_, *good, *other);
  send_piece(*good_weights);
  while (good_weights->credit_frames() < other->limits().weights.frames + 1) ASSERT_TRUE(good_weights->receive());
}

// Whichever thread has the last connection, and where both lose theirs at one time.
TEST_F(WeightsThreadTest, LastConnectionOfEitherThreadGone_EndsTheSession) {
  node_.serve();
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const SessionRef session = node_.ready_session();
    auto latency = greeted(*session, wire::Lane::kLatency), weights = greeted(*session, wire::Lane::kWeights);
    auto& first = round % 3 == 0 ? latency : weights;
    auto& last = round % 3 == 0 ? weights : latency;
    if (round % 3 == 2) {
      std::thread beside([&] { first.reset(); });
      last.reset();
      beside.join();
    } else {
      first.reset();
      for (int i = 0; i < 2; ++i) {
        last->send_plain(wire::FrameType::kPing, 100);
        EXPECT_EQ(last->receive_answer()->type(), wire::FrameType::kPong);
      }
      EXPECT_FALSE(session->ended());
      last.reset();
    }
    ASSERT_TRUE(ends(*session));
    EXPECT_THAT(session->end_reason().text(), HasSubstr("last data connection is gone"));
  }
}

TEST_F(WeightsThreadTest, Goodbyes_TheLastOneIsACloseByWish) {
  node_.serve();
  const SessionRef session = node_.ready_session();
  const auto latency = greeted(*session, wire::Lane::kLatency), weights = greeted(*session, wire::Lane::kWeights);
  latency->send_plain(wire::FrameType::kClose, 100);
  EXPECT_TRUE(latency->drained());
  EXPECT_FALSE(session->ended());
  weights->send_plain(wire::FrameType::kClose, 100);
  ASSERT_TRUE(ends(*session));
  EXPECT_TRUE(session->closed_by_wish());
}

TEST_F(WeightsThreadTest, SessionEnds_TheLaneHearsWhy) {
  node_.serve();
  const SessionRef session = node_.ready_session();
  const auto weights = greeted(*session, wire::Lane::kWeights);
  session->end(Error(ErrorCode::kDeadline, "the lease is over"));
  EXPECT_EQ(error_of(weights->receive_answer()).text, "the lease is over");
}

TEST_F(WeightsThreadTest, Stop_TheLaneHearsIt_AlsoOneThatCameJustNow) {
  for (int round = 0; round < 10; ++round) {
    NodeParts node(model_, endless_lease());
    node.serve();
    const SessionRef session = node.ready_session();
    LaneClient weights = node.connect(*session, wire::Lane::kWeights);
    weights.greet();
    std::thread stopper([&] { node.stop_server(); });
    EXPECT_THAT(error_of(weights.receive_answer()).text, HasSubstr("shutting down"));
    EXPECT_TRUE(weights.drained());
    stopper.join();
  }
}

// The thread that gives the last of them back may be in the middle of that when the loop has nothing left to wait for.
TEST_F(WeightsThreadTest, Stop_WhilePiecesAreBeingHashed_EndsOnceTheyHaveComeBack) {
  for (int round = 0; round < 20; ++round) {
    NodeParts node(model_, endless_lease());
    node.serve();
    const SessionRef session = node.ready_session();
    LaneClient weights = node.connect(*session, wire::Lane::kWeights);
    weights.greet();
    for (int i = 0; i < round; ++i) send_piece(weights);
    node.stop_server();
    EXPECT_TRUE(weights.drained());
    EXPECT_FALSE(session->ended());
  }
}

TEST(OpenConnections, EachSocketOfEachLaneOnce_AnyUntilTheLastHasLeft) {
  OpenConnections open;
  EXPECT_FALSE(open.any());
  for (const wire::Lane lane : {wire::Lane::kLatency, wire::Lane::kBulk, wire::Lane::kWeights})
    for (std::uint32_t socket = 0; socket < wire::kMostSockets; ++socket) {
      EXPECT_TRUE(open.enter(lane, socket));
      EXPECT_FALSE(open.enter(lane, socket));
    }
  for (const wire::Lane lane : {wire::Lane::kWeights, wire::Lane::kLatency, wire::Lane::kBulk})
    for (std::uint32_t socket = 0; socket < wire::kMostSockets; ++socket) {
      EXPECT_TRUE(open.any());
      open.leave(lane, socket);
    }
  EXPECT_FALSE(open.any());
  EXPECT_TRUE(open.enter(wire::Lane::kWeights, 0));
}

}  // namespace weights_thread_test
}  // namespace terrace::node
