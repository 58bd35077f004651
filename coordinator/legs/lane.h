// One lane of a session with a node: a connection, the credit the node has given, and whether it is alive. Below it
// lies common/transport, above it the node leg (batches) and the slab sender (weights).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/wire/frame.h"
#include "common/wire/messages.h"

namespace terrace::legs {

using Clock = std::chrono::steady_clock;

struct LaneOptions {
  std::string node;          // for messages: the string given to --node
  std::string data_address;  // HOST:PORT of the node's data plane
  wire::Lane lane = wire::Lane::kLatency;
  std::uint64_t session = 0;
  wire::Token token{};
  std::uint64_t largest_frame = 0;   // that we accept
  std::uint64_t receive_window = 0;  // bytes of replies that may wait for us at once
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds liveness_timeout{10'000};  // silence after which the node is gone
};

// One owner thread.
class Lane {
 public:
  // Connects, says Hello and waits for Welcome. kPeerGone, kDeadline, kRefused (with the node's reason), kCorrupt.
  static Result<std::unique_ptr<Lane>> open(transport::Transport& transport, const LaneOptions& options);
  ~Lane();

  // What the node accepts in one frame.
  std::uint64_t largest_frame() const { return welcome_.largest_frame; }
  // The node's first grant: a frame that needs more can never be sent.
  std::uint64_t window_bytes() const { return welcome_.credit_bytes; }

  bool has_credit(std::uint64_t frame_bytes) const { return credit_frames_ >= 1 && credit_bytes_ >= frame_bytes; }
  // A header for the next frame of this lane: session, lane and sequence are set.
  wire::FrameHeader next_header(wire::FrameType type);
  // Sends a finished frame that uses credit; there is credit (has_credit). What the builder's parts point to is
  // borrowed until on_sent gives the ticket back. kBusy, kPeerGone.
  Result<transport::SendTicket> send(wire::FrameBuilder& builder);

  struct Handlers {
    // A frame for the layer above: kReply, kBusy, or kError that names a batch. True: it keeps the frame's memory and
    // gives it back by release(). An error closes the lane.
    FunctionRef<Result<bool>(const wire::Frame& frame, std::span<const std::byte> bytes)> on_frame;
    FunctionRef<void(transport::SendTicket)> on_sent;
  };
  // Moves bytes without blocking; answers pings, takes credit. An error is final and names the node.
  Status poll(const Handlers& handlers);
  // Blocks until poll() may have something to do, or the time is over. While waiting for the node, asks it for a sign
  // of life once a second; kPeerGone when there was none for the liveness timeout.
  Status wait(std::chrono::microseconds timeout);
  // The wait for the node begins now: silence before it does not count.
  void expect_life();
  void release(std::span<const std::byte> frame) { connection_->release(frame); }

  transport::TransportStats stats() const { return connection_->stats(); }
  // Says goodbye as far as the socket takes it, and closes.
  void close();

 private:
  Lane(const LaneOptions& options, std::unique_ptr<transport::Connection> connection);
  Status greet();
  Result<transport::SendTicket> send_parts(std::span<const std::span<const std::byte>> parts);
  Status take_frame(std::span<const std::byte> bytes, const Handlers& handlers);
  Status take_credit(const wire::FrameHeader& header);
  void send_control(wire::FrameType type, std::uint64_t sequence);
  Error gone(const std::string& why) const;

  // Frames without sections (ping, pong, close): each needs its header until it is sent.
  struct ControlFrame {
    wire::FrameBuilder builder;
    transport::SendTicket ticket = 0;  // 0: free
  };

  LaneOptions options_;
  std::unique_ptr<transport::Connection> connection_;
  wire::Welcome welcome_;
  std::uint64_t credit_frames_ = 0;
  std::uint64_t credit_bytes_ = 0;
  std::uint64_t next_sequence_ = 1;
  Clock::time_point last_heard_;
  Clock::time_point last_ping_;
  std::array<ControlFrame, 8> control_frames_;
};

}  // namespace terrace::legs
