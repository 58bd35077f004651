// One lane of a session with a node, or one connection of a lane that has several: a connection, the credit the node
// has given, and whether it is alive. Below it lies common/transport, above it the node leg (batches) and the slab
// sender (weights).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/pacing.h"
#include "common/transport/sealed/link_key.h"
#include "common/wire/frame.h"
#include "common/wire/messages.h"
#include "coordinator/legs/step_clock.h"

namespace terrace::legs {

using Clock = std::chrono::steady_clock;

struct LaneOptions {
  std::string node;          // for messages: the string given to --node
  std::string data_address;  // HOST:PORT of the node's data plane
  wire::Lane lane = wire::Lane::kLatency;
  std::uint32_t socket_index = 0;  // of the lane: the others are lanes of their own here
  std::uint64_t session = 0;
  std::optional<transport::LinkKey> key;  // that both ends prove; the transport is one that can
  std::uint64_t largest_frame = 0;        // that we accept
  std::uint64_t receive_window = 0;       // bytes of replies that may wait for us at once
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds liveness_timeout{10'000};  // wait(): no frame for so long after we asked: the node is gone
  std::stop_token stop{};                              // ends open() early (kPeerGone)
  StepClock* clock = nullptr;                          // borrowed; null: the steady one
  // With a rate the lane is paced while decode steps live; both are borrowed. null: it never is.
  const transport::DecodeActivity* decode = nullptr;
  transport::LinkRate* rate = nullptr;
  std::chrono::microseconds busy_poll{0};  // transport::Options::busy_poll
};

class LaneRenewal;

// One owner thread. An error of poll(), wait() or abort() is final: the connection is closed, and every later call
// gives the same error.
class Lane {
 public:
  // Connects, says Hello and waits for Welcome, each for at most the connect timeout. kPeerGone, kDeadline, kRefused
  // (with the node's reason), kCorrupt; each names the node. `transport` outlives the lane: a connection that is near
  // its end is replaced by another one (LaneRenewal) as soon as nothing is open on it; frames that need credit have
  // none meanwhile, so that whoever has one to send waits as ever. That it fails is the loss of the lane.
  static Result<std::unique_ptr<Lane>> open(transport::Transport& transport, const LaneOptions& options);
  ~Lane();

  const std::string& node() const { return options_.node; }
  // Frames are counted here as builders make them; sealed they are so much longer on the link, where the node counts.
  std::uint64_t seal_bytes() const { return seal_bytes_; }
  // What the node accepts in one frame.
  std::uint64_t largest_frame() const { return less_seal(welcome_.largest_frame); }
  // The node's first grant: a frame that needs more can never be sent.
  std::uint64_t window_bytes() const { return less_seal(welcome_.credit_bytes); }
  // Bytes of received frames, as they travel, that may be held (not released) at once.
  std::uint64_t receive_window() const { return options_.receive_window; }

  bool has_credit(std::uint64_t frame_bytes) const {
    return !near_its_end_ && credit_frames_ >= 1 && credit_bytes_ >= frame_bytes + seal_bytes_;
  }
  // The node has given back what every frame took.
  bool all_credit_back() const {
    return credit_frames_ == welcome_.credit_frames && credit_bytes_ == welcome_.credit_bytes;
  }
  // A header for the next frame of this lane: session, lane and sequence are set. The sequence is used up when the
  // frame is sent: ask for the header directly before send().
  wire::FrameHeader next_header(wire::FrameType type) const;
  // Sends a frame (begun with next_header()) that uses credit; there is credit (has_credit). What the builder's parts
  // point to is borrowed until on_sent gives the ticket back, or the lane has failed. kBusy: nothing was taken.
  // kPeerGone: poll() tells why.
  Result<transport::SendTicket> send(wire::FrameBuilder& builder);

  struct Handlers {
    // A frame for the layer above: kWelcome, kReply, or kBusy and kError that name a frame of ours. True: it keeps the
    // frame's memory and gives it back by release(). An error (that need not name the node) closes the lane.
    FunctionRef<Result<bool>(const wire::Frame& frame, std::span<const std::byte> bytes)> on_frame;
    FunctionRef<void(transport::SendTicket)> on_sent;
  };
  // Moves bytes without blocking, a bounded number of them; answers pings, takes credit. Errors name the node.
  Status poll(const Handlers& handlers);
  // Blocks until poll() may have something to do, or the time is over. Asks a silent node for a sign of life, one ping
  // at a time; kPeerGone when no frame came for the liveness timeout after that. Called after poll().
  Status wait(std::chrono::microseconds timeout);
  // The same for several, at most kMostSockets, of one clock.
  static Status wait_any(std::span<Lane* const> lanes, std::chrono::microseconds timeout);
  // What a caller gives who has something else to look at: deadlines, the other lane.
  static constexpr std::chrono::milliseconds kLongestWait{200};
  // For callers that wait by other means than wait(). A node that has been silent for `ask_after` is asked for a sign
  // of life, one ping at a time; kPeerGone when no frame came for `limit` after that. Called after poll().
  Status look_for_life(StepClock::Duration ask_after, StepClock::Duration limit);
  // What to wait for with ::poll().
  pollfd wait_entry();
  // The wait for the node begins now: silence before it does not count.
  void expect_life();
  void release(std::span<const std::byte> frame);

  // The node is given up for a reason of the layer above, whose text names the node: nothing that send() borrowed is
  // read any more. The first reason stays.
  void abort(const Error& why);

  // Decode steps are under way, and a frame that is long in coming stands in their way. Never where the lane is not
  // paced.
  bool decode_lives() const { return options_.rate != nullptr && options_.decode->live(Clock::now()); }

  // What it sends moves in the background: Pacer::set_most(). Nothing where the lane is not paced.
  void set_most(double share) {
    if (pacer_) pacer_->set_most(share);
  }

  // Whether it failed by what the node said in frames that were whole: not a fault of the link.
  bool wrong() const { return wrong_; }
  StepClock& clock() const { return *clock_; }

  transport::TransportStats stats() const;  // of all its connections
  // Says goodbye as far as the socket takes it, and closes.
  void close();

 private:
  // Frames without sections (ping, pong, close): each needs its header until it is sent.
  struct ControlFrame {
    wire::FrameBuilder builder;
    transport::SendTicket ticket = 0;  // 0: free
  };

  Lane(transport::Transport& transport, const LaneOptions& options, std::unique_ptr<transport::Connection> connection);
  Status greet();
  Status take_event(const transport::Event& event, const Handlers& handlers);
  Status take_frame(std::span<const std::byte> bytes, const Handlers& handlers);
  Result<bool> dispatch(const wire::Frame& frame, std::span<const std::byte> bytes, const Handlers& handlers);
  Status take_credit(std::uint64_t frames, std::uint64_t bytes);
  void take_sent(transport::SendTicket ticket, const Handlers& handlers);
  // False: too many of these are unsent, or the connection is closed.
  bool send_control(wire::FrameType type, std::uint64_t sequence);
  std::chrono::milliseconds ping_every() const;
  // Nothing of it is unsent, unanswered or held.
  bool quiet() const;
  Status renew();
  Status take_renewed();
  // Closes the lane. `why` does not name the node.
  Status fail(const Error& why);
  Error link_failure(const Error& why) const;
  Error named(const Error& why) const;
  void tell_node(const Error& why);

  std::uint64_t less_seal(std::uint64_t bytes) const { return bytes - std::min(bytes, seal_bytes_); }

  transport::Transport& transport_;
  LaneOptions options_;
  std::array<ControlFrame, 8> control_frames_;         // outlive the connection, which borrows from them
  std::unique_ptr<transport::Connection> connection_;  // null while it is renewed
  std::unique_ptr<LaneRenewal> renewal_;
  StepClock::TimePoint renewed_since_;
  transport::TransportStats stats_before_;  // of the connections before this one
  std::optional<transport::Pacer> pacer_;
  bool near_its_end_ = false;
  std::size_t n_unsent_ = 0;  // frames of the layers above
  std::size_t n_held_ = 0;
  StepClock* const clock_;
  std::optional<Error> failed_;
  bool wrong_ = false;
  wire::Welcome welcome_;
  std::uint64_t seal_bytes_ = 0;
  std::uint64_t credit_frames_ = 0;
  std::uint64_t credit_bytes_ = 0;
  std::uint64_t next_sequence_ = 1;
  StepClock::TimePoint last_heard_;
  StepClock::TimePoint last_ping_;
  bool ping_open_ = false;  // sent and not answered
};

}  // namespace terrace::legs
