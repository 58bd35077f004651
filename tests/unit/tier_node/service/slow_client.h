// Clients that take their time, on sockets that know nothing of frames, and an honest session beside them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/transport/sealed/handshake.h"
#include "common/transport/tcp/tcp.h"
#include "tests/unit/common/transport/raw_socket.h"
#include "tests/unit/tier_node/support/node_parts.h"

namespace terrace::node::test {

using namespace std::chrono_literals;
using transport::test::RawSocket;

inline constexpr auto kHang = 60s;  // far more than any limit here

// Sends its bytes one at a time, a moment apart, from a thread of its own, until they are all sent or nobody listens.
// Calls `beside` after each.
class Dripper {
 public:
  Dripper(
      RawSocket& socket, std::vector<std::byte> bytes, std::function<void()> beside = [] {})
      : socket_(socket), bytes_(std::move(bytes)), beside_(std::move(beside)), thread_([this] { drip(); }) {}
  ~Dripper() {
    stop_ = true;
    thread_.join();
  }
  std::size_t sent() const { return sent_; }

 private:
  void drip() {
    while (!stop_ && sent_ < bytes_.size() && socket_.try_write(std::span(bytes_).subspan(sent_, 1))) {
      ++sent_;
      beside_();
      std::this_thread::sleep_for(10ms);
    }
  }
  RawSocket& socket_;
  const std::vector<std::byte> bytes_;
  const std::function<void()> beside_;
  std::atomic<std::size_t> sent_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

inline std::vector<std::byte> contiguous(wire::FrameBuilder& builder) {
  std::vector<std::byte> all;
  for (const auto part : builder.finish()) all.insert(all.end(), part.begin(), part.end());
  return all;
}
// A proof that proves nothing.
inline std::vector<std::byte> proof_bytes(const Session& session, wire::Lane lane) {
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kProof, .lane = lane, .session = session.id()});
  wire::add_proof(builder, {});
  return contiguous(builder);
}
inline std::vector<std::byte> hello_bytes(const Session& session, wire::Lane lane) {
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kHello, .lane = lane, .session = session.id(), .sequence = 1});
  wire::Hello hello;
  hello.largest_frame = session.limits().largest_peer_frame;
  wire::add_hello(builder, hello);
  return contiguous(builder);
}
// As the session's second frame on lane latency.
inline std::vector<std::byte> batch_bytes(const TinyModel& model, const Session& session, std::uint32_t n_rows = 2) {
  const TestBatch batch(model, 0, n_rows, 2, kSeed);
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kBatch, .session = session.id(), .sequence = 2, .epoch = 1});
  wire::add_batch(builder, batch.info(), batch.gate_rows, {}, batch.pairs, batch.ranges);
  return contiguous(builder);
}

class SlowClient : public ::testing::Test {
 protected:
  void start(const NodeSettings& settings) {
    node_ = std::make_unique<NodeParts>(model_, settings);
    node_->serve(tcp_, "127.0.0.1:0");
    data_port_ = static_cast<std::uint16_t>(std::stoi(node_->address().substr(node_->address().rfind(':') + 1)));
    other_ = node_->ready_session();
    good_.reset(new LaneClient(node_->connect(*other_, wire::Lane::kLatency)));
    good_->greet();
  }
  // The coordinator's part of the handshake, by hand.
  void prove(RawSocket& socket, const Session& session, wire::Lane lane) {
    transport::Handshake handshake(node_->link_key(session, lane), {});
    for (const std::size_t bytes : {std::size_t{96}, std::size_t{112}}) {  // challenge, accept
      AlignedBuffer frame = must(AlignedBuffer::allocate(bytes));
      ASSERT_TRUE(socket.read(frame.bytes(), kHang)) << "the node says nothing";
      for (const auto part : must(handshake.take(frame.bytes()))) socket.write(part);
    }
    ASSERT_TRUE(handshake.done());
  }
  void expect_others_are_served() {
    other_->extend_lease(std::chrono::steady_clock::now() + kHang);
    const TestBatch batch(model_, 0, 3, 2, kSeed);
    good_->send_batch(batch, 1);
    const auto reply = good_->receive_answer();
    ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
    std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
    add_reply_sums(*reply, batch, *other_, sums);
    EXPECT_EQ(sums, batch.expected(model_));
  }
  // Only what the honest session holds is left.
  void expect_nothing_left() {
    other_->end(Error(ErrorCode::kPeerGone, "the test is over"));
    EXPECT_TRUE(good_->drained());
    node_->stop_server();
    EXPECT_EQ(node_->store().usage().reserved, 0u);
  }

  TinyModel model_;
  transport::TcpTransport tcp_;
  std::unique_ptr<NodeParts> node_;
  std::uint16_t data_port_ = 0;
  SessionRef other_;
  std::unique_ptr<LaneClient> good_;
};

inline NodeSettings patient() {
  NodeSettings settings;
  settings.sessions.lease = std::chrono::hours(1);
  return settings;
}

}  // namespace terrace::node::test
