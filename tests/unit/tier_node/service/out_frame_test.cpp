// Memory of frames on their way out: each goes back to its pool.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/unit/tier_node/service/data_server_testing.h"
#include "tier_node/service/peer.h"

namespace terrace::node {
namespace out_frame_test {

using test::must;
using test::NodeParts;
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
  const TinyModel model_;
  NodeParts node_{model_};
  const SessionRef session_;
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

}  // namespace out_frame_test
}  // namespace terrace::node
