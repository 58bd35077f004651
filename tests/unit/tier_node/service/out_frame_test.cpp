// Memory of frames on their way out: what a session is charged for its replies, and that each goes back to its pool.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "common/wire/pack.h"
#include "tests/unit/tier_node/service/data_server_testing.h"
#include "tier_node/service/batch_runner.h"
#include "tier_node/service/peer.h"

namespace terrace::node {
namespace out_frame_test {

using test::kSeed;
using test::must;
using test::NodeParts;
using test::TestBatch;
using test::TinyModel;

class OutFrames : public ::testing::Test {
 protected:
  OutFrames() : session_(node_.ready_session()) {
    listener_ = must(loopback_.listen("node:1", {}));
    far_end_ = must(loopback_.connect("node:1", {}, std::chrono::seconds(1)));
    peer_ = std::make_unique<Peer>(1, must(listener_->accept()), frames_, TimePoint::max());
  }
  // What the other end reads, and then this one.
  void all_is_read() {
    std::array<transport::Event, 16> events;
    for (std::size_t n = 1; n > 0;) {
      n = far_end_->poll(events);
      for (const transport::Event& event : std::span(events).first(n))
        if (event.kind == transport::Event::Kind::kReceived) far_end_->release(event.frame);
      const std::size_t own = peer_->connection().poll(events);
      for (const transport::Event& event : std::span(events).first(own))
        if (event.kind == transport::Event::Kind::kSent) peer_->sent(event.ticket);
      n += own;
    }
  }
  // Packed values that take three of the eight bytes that each may take.
  OutFramePtr reply(std::size_t widest) {
    OutFramePtr reply = frames_.take();
    reply->widest_bytes = widest;
    reply->data.resize(widest);
    reply->data.resize(widest * 3 / 8);
    return reply;
  }
  // Of so many rows; the runner's own way from a batch to its reply.
  OutFramePtr computed(std::uint32_t n_rows, wire::ReplyForm form) {
    const TestBatch batch(model_, 0, n_rows, 2, kSeed);
    Work work;
    work.session = session_;
    work.epoch = must(session_->find_epoch(1));
    work.batch.info = batch.info();
    work.batch.info.form = form;
    work.batch.gate_rows = batch.gate_rows;
    work.batch.up_rows = batch.up_rows.empty() ? batch.gate_rows : batch.up_rows;
    work.batch.pairs = batch.pairs;
    work.batch.ranges = batch.ranges;
    const kernels::Ops ops = must(kernels::select_ops(test::this_machine().cpu, std::nullopt));
    BatchRunner runner(serial_, frames_, make_pair_executor(serial_, ops), nullptr);
    OutFramePtr reply;
    must(runner.run(
        work, [&](OutFramePtr emitted) { reply = std::move(emitted); }, [] { return true; }));
    return reply;
  }

  const TinyModel model_;
  NodeParts node_{model_};
  const SessionRef session_;
  Serial serial_;
  transport::LoopbackTransport loopback_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<transport::Connection> far_end_;
  FramePool frames_, others_;
  std::unique_ptr<Peer> peer_;
};

TEST_F(OutFrames, SentBeforeThePoolChanged_GoBackToTheFirst) {
  ASSERT_TRUE(peer_->open(session_, wire::Lane::kWeights));
  peer_->use(others_);
  peer_->send_plain(wire::FrameType::kPing);
  all_is_read();
  EXPECT_TRUE(peer_->all_sent());
  EXPECT_EQ(frames_.kept_frames(), 1u) << "the welcome";
  EXPECT_EQ(others_.kept_frames(), 1u) << "the ping";
}

TEST_F(OutFrames, ReplyOfTheRunner_HoldsRoomForItsValuesAtTheirWidest) {
  const std::size_t a_row = wire::widest_packed_bytes(model_.manifest.d_model);
  const OutFramePtr one = computed(1, wire::ReplyForm::kSum);
  EXPECT_LT(one->data.size(), a_row);
  EXPECT_EQ(one->held_bytes(), a_row);
  const OutFramePtr three = computed(3, wire::ReplyForm::kSum);
  EXPECT_GE(three->held_bytes(), three->data.size());
  EXPECT_LE(three->held_bytes(), 3 * a_row);
  const OutFramePtr slots = computed(1, wire::ReplyForm::kSlots);
  EXPECT_EQ(slots->held_bytes(), slots->data.size());
  EXPECT_GT(slots->data.size(), 0u);
}

TEST_F(OutFrames, MemoryOfALargerReplyBefore_IsNotTheNextOnesAccount) {
  frames_.give(reply(4096));
  OutFramePtr small = reply(64);
  EXPECT_GE(small->data.capacity(), 4096u);
  EXPECT_EQ(small->held_bytes(), 64u);
  frames_.give(std::move(small));
  EXPECT_EQ(frames_.take()->held_bytes(), 0u);
}

// Three eighths of what they hold travel: were those counted, twenty-one of them could lie unread.
TEST_F(OutFrames, RepliesThatNobodyReads_AreCutOffByWhatTheyHoldAndEachReadMakesRoom) {
  ASSERT_TRUE(peer_->open(session_, wire::Lane::kLatency));
  const SessionLimits& limits = session_->limits();
  const Work work;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t n = 0; n < limits.batches.frames; ++n) peer_->send_reply(work, reply(limits.reply_bytes));
    ASSERT_FALSE(peer_->aborted());
    if (round == 0) all_is_read();
  }
  peer_->send_reply(work, reply(limits.reply_bytes));
  EXPECT_TRUE(peer_->aborted());
  ASSERT_TRUE(peer_->cut_off_reason());
  EXPECT_EQ(peer_->cut_off_reason()->code(), ErrorCode::kRefused);
}

}  // namespace out_frame_test
}  // namespace terrace::node
