// Which thread of a node computes: small decode batches stay on the I/O thread, with one core always, else where it is
// asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/transport/recording/recorder.h"
#include "common/transport/tcp/tcp.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/tier_node/support/node_parts.h"
#include "tier_node/service/slice_limit.h"

namespace terrace::node {
namespace data_server_waiting_test {

using test::kSeed;
using test::LaneClient;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using test::TinyModel;

// The sums that answer a batch of one range.
std::vector<std::int64_t> answer(LaneClient& client, const TestBatch& batch, const Session& session,
                                 std::uint64_t sequence) {
  std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
  const auto reply = client.receive_answer();
  if (!reply || reply->type() != wire::FrameType::kReply) {
    ADD_FAILURE() << "no reply: " << test::error_of(reply).text;
    return sums;
  }
  EXPECT_EQ(reply->header().sequence, sequence);
  test::add_reply_sums(*reply, batch, session, sums);
  return sums;
}

using Open = std::vector<std::pair<const TestBatch*, std::uint64_t>>;  // batches of one range, by sequence

// Each is answered once and right; in any order, as docs/wire.md 4 allows.
void expect_answers(LaneClient& client, Open open, const TinyModel& model, const Session& session) {
  while (!open.empty()) {
    const auto reply = client.receive_answer();
    ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << test::error_of(reply).text;
    const auto asked = std::find_if(open.begin(), open.end(),
                                    [&](const auto& batch) { return batch.second == reply->header().sequence; });
    ASSERT_NE(asked, open.end()) << "sequence " << reply->header().sequence;
    std::vector<std::int64_t> sums(std::size_t{asked->first->n_rows} * asked->first->d_model());
    test::add_reply_sums(*reply, *asked->first, session, sums);
    EXPECT_EQ(sums, asked->first->expected(model));
    open.erase(asked);
  }
}

struct Way {
  const char* name;
  Waiting waiting;
  bool computes_here;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class DataServerWaiting : public ::testing::TestWithParam<Way> {
 protected:
  static bool io_thread_computes() { return GetParam().waiting == Waiting::kBlock || GetParam().computes_here; }
  static NodeSettings settings() {
    NodeSettings settings;
    settings.waiting = GetParam().waiting;
    settings.computes_here = GetParam().computes_here;
    return settings;
  }
  TinyModel model_;
};

INSTANTIATE_TEST_SUITE_P(Ways, DataServerWaiting,
                         ::testing::Values(Way{"Block", Waiting::kBlock, false},
                                           Way{"SpinThenPark", Waiting::kSpinThenPark, false},
                                           Way{"SpinThenParkHere", Waiting::kSpinThenPark, true}),
                         [](const auto& test) { return test.param.name; });

TEST_P(DataServerWaiting, DecodeIsComputedByTheIoThread_OnlyWhereItIsTo) {
  for (const bool tcp : {false, true}) {
    transport::TcpTransport transport;
    NodeParts node(model_, settings());
    if (tcp)
      node.serve(transport, "127.0.0.1:0");
    else
      node.serve();
    const SessionRef session = node.ready_session();
    LaneClient latency = node.connect(*session, wire::Lane::kLatency), bulk = node.connect(*session, wire::Lane::kBulk);
    latency.greet();
    bulk.greet();
    const TestBatch decode(model_, 0, 3, 2, kSeed), prompt(model_, 1, 40, 2, kSeed);
    const auto run_prompt = [&] {
      const auto sequence = bulk.send_batch(prompt, 1, wire::Priority::kPrompt);
      EXPECT_EQ(answer(bulk, prompt, *session, sequence), prompt.expected(model_));
      return node.gate().take_runners();
    };
    const std::set<std::thread::id> computing = run_prompt();
    EXPECT_EQ(computing.size(), 1u);
    // The compute thread may come back from its last batch just in time to take one, but not for ever.
    std::set<std::thread::id> decoding;
    for (int i = 0; i < 40 || (io_thread_computes() && decoding == computing && i < 10'000); ++i) {
      EXPECT_EQ(answer(latency, decode, *session, latency.send_batch(decode, 1)), decode.expected(model_));
      decoding.merge(node.gate().take_runners());
    }
    if (io_thread_computes())
      EXPECT_NE(decoding, computing);
    else
      EXPECT_EQ(decoding, computing);
    EXPECT_EQ(run_prompt(), computing) << "a prompt never holds up the I/O thread";
  }
}

// 33 pairs are one too many: the compute thread has them, and the I/O thread answers.
TEST_P(DataServerWaiting, LargeDecodeBatch_PingIsAnsweredWhileItIsComputed) {
  NodeParts node(model_, settings());
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  const TestBatch large(model_, 0, 33, 1, kSeed), small(model_, 1, 1, 2, kSeed);
  node.gate().close();
  const std::uint64_t first = client.send_batch(large, 1);
  node.gate().await_standstill();
  const std::uint64_t second = client.send_batch(small, 1);  // waits for its turn: nobody computes beside the other
  client.send_plain(wire::FrameType::kPing, 7);
  const auto pong = client.receive_answer();
  ASSERT_TRUE(pong);
  EXPECT_EQ(pong->type(), wire::FrameType::kPong);
  node.gate().open();
  expect_answers(client, {{&large, first}, {&small, second}}, model_, *session);
}

// Where weights have no thread of their own, a node that reads all that has come of them before it looks at decode
// batches again keeps a step waiting. Pings stand for batches: more of them than are read in one turn, so that weights
// get a turn in between.
TEST_P(DataServerWaiting, PiecesOfSlabsWait_PingsPassAllButOneATurn) {
  if (!io_thread_computes()) return;  // it cannot be held
  const terrace::test::TempDir dir;
  transport::LoopbackTransport loopback;
  const auto recorder = test::must(transport::Recorder::create(dir / "frames"));
  transport::RecordingTransport recorded(transport::test::borrowed(loopback), recorder);
  NodeSettings together = settings();
  together.weights_apart = false;
  NodeParts node(model_, together);
  node.serve(recorded, "node:9001");
  const SessionRef session = node.ready_session();
  LaneClient weights = node.connect(*session, wire::Lane::kWeights);
  const std::uint64_t granted = weights.greet().credit_frames;
  LaneClient latency = node.connect(*session, wire::Lane::kLatency);
  latency.greet();
  const TestBatch batch(model_, 0, 1, 2, kSeed);
  node.gate().close();
  latency.send_batch(batch, 1);
  node.gate().await_standstill();
  constexpr int kPieces = 20;
  for (int i = 0; i < kPieces; ++i) weights.send_piece({0, 0, 0, 4096}, std::span(model_.slab(0, 0)).first(1024));
  constexpr int kPings = 20;
  for (int i = 0; i < kPings; ++i) latency.send_plain(wire::FrameType::kPing, 7);
  node.gate().open();
  while (weights.credit_frames() < granted + kPieces) ASSERT_TRUE(weights.receive().has_value());
  node.stop_server();
  ASSERT_TRUE(recorder->finish().ok());

  int pieces = 0, pings = 0;
  const transport::Recording recording = test::must(transport::Recording::read(dir / "frames"));
  for (const transport::RecordedEntry& entry : recording.entries()) {
    if (entry.event != transport::RecordedEvent::kReceived) continue;
    const wire::FrameType type = test::must(wire::decode_frame(entry.frame)).header.type;
    pieces += type == wire::FrameType::kSlab && pings < kPings;
    pings += type == wire::FrameType::kPing;
  }
  EXPECT_EQ(pings, kPings);
  EXPECT_LE(pieces, 3) << "before the last ping, which took three turns at the most";
}

// Several batches at once: none is lost between the two threads, whoever takes it.
TEST_P(DataServerWaiting, ManyOpenBatches_AreAllAnswered) {
  NodeParts node(model_, settings());
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  const TestBatch small(model_, 0, 1, 2, kSeed), large(model_, 1, 40, 1, kSeed);
  for (int round = 0; round < 30; ++round) {
    Open open;
    for (int i = 0; i < 6; ++i) {
      const TestBatch& batch = (round + i) % 3 == 0 ? large : small;
      open.push_back({&batch, client.send_batch(batch, 1)});
    }
    SCOPED_TRACE(round);
    expect_answers(client, std::move(open), model_, *session);
  }
}

TEST_P(DataServerWaiting, DecodeBatch_OvertakesThePromptBetweenItsSlices) {
  NodeParts node(model_, settings());
  node.serve();
  const SessionRef session = node.ready_session();
  LaneClient bulk = node.connect(*session, wire::Lane::kBulk), latency = node.connect(*session, wire::Lane::kLatency);
  bulk.greet();
  latency.greet();
  const TestBatch prompt(model_, 0, 512, 8, kSeed), decode(model_, 1, 1, 2, kSeed);

  node.gate().close();
  const std::uint64_t prompt_sequence = bulk.send_batch(prompt, 1, wire::Priority::kPrompt);
  node.gate().await_standstill();  // inside the prompt's first slice
  const std::uint64_t decode_sequence = latency.send_batch(decode, 1);
  latency.send_plain(wire::FrameType::kPing, 1);
  ASSERT_EQ(latency.receive_answer()->type(), wire::FrameType::kPong);  // so the batch is in the queue

  // Of the prompt no more than the slice in hand, a few of its pairs: then the decode batch is computed, and packed.
  static_assert(SliceLimit::kFirstPairs < 512 * 8 / 100);
  for (int run = 0; run < 3; ++run) {
    node.gate().permit_one();
    node.gate().await_standstill();
  }
  const auto reply = latency.receive_answer();
  ASSERT_TRUE(reply);
  ASSERT_FALSE(bulk.receive_answer(std::chrono::milliseconds(0))) << "the prompt was answered first";
  EXPECT_EQ(reply->header().sequence, decode_sequence);
  std::vector<std::int64_t> sums(decode.d_model());
  test::add_reply_sums(*reply, decode, *session, sums);
  EXPECT_EQ(sums, decode.expected(model_));
  node.gate().open();
  EXPECT_EQ(answer(bulk, prompt, *session, prompt_sequence), prompt.expected(model_));
}

TEST(SliceLimit, HasThePairsThatTakeTheTime_GrowsByHalfAndForgetsOneSlowSlice) {
  SliceLimit limit;
  EXPECT_EQ(limit.pairs(), SliceLimit::kFirstPairs);
  limit.took(16, SliceLimit::kMost / 2);  // room for 32
  EXPECT_EQ(limit.pairs(), 24u);
  limit.took(24, SliceLimit::kMost / 2);  // for 48
  EXPECT_EQ(limit.pairs(), 36u);
  limit.took(36, 3 * SliceLimit::kMost);  // held up, perhaps
  EXPECT_EQ(limit.pairs(), 48u);
  limit.took(48, 4 * SliceLimit::kMost);  // twice: it takes longer now
  EXPECT_EQ(limit.pairs(), 12u);
  limit.took(12, SliceLimit::kMost);
  EXPECT_EQ(limit.pairs(), 12u);
  for (int i = 0; i < 2; ++i) limit.took(12, 1000 * SliceLimit::kMost);
  EXPECT_EQ(limit.pairs(), SliceLimit::kLeastPairs);
  for (int i = 0; i < 100; ++i) limit.took(limit.pairs(), std::chrono::nanoseconds(0));  // a clock that stands
  EXPECT_EQ(limit.pairs(), kernels::Executor::kMaxPairsPerSlice);
  for (int i = 0; i < 2; ++i) limit.took(5, SliceLimit::kMost / 2);  // batches' last few pairs
  EXPECT_EQ(limit.pairs(), kernels::Executor::kMaxPairsPerSlice);
  for (int i = 0; i < 2; ++i) limit.took(10, SliceLimit::kMost);
  EXPECT_EQ(limit.pairs(), 10u);
}

}  // namespace data_server_waiting_test
}  // namespace terrace::node
