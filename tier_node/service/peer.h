// One data connection: its place in a session, its credit, what is on its way in and out.
//
// Threads  One at a time: the thread whose PeerLoop it is part of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/transport/connection.h"
#include "common/transport/pacing.h"
#include "tier_node/service/frame_deadline.h"
#include "tier_node/service/out_frame.h"
#include "tier_node/service/work.h"
#include "tier_node/session/session.h"

namespace terrace::node {

class Peer {
 public:
  enum class State : std::uint8_t {
    kMute,     // connected, has not said hello
    kOpen,     // one lane of a session
    kClosing,  // said goodbye; sends what is queued until the peer closes or its time is over
    kClosed,   // the transport is done with it; kept while others still read its frames
  };

  Peer(std::uint64_t id, std::unique_ptr<transport::Connection> connection, FramePool& frames, TimePoint deadline);

  std::uint64_t id() const { return id_; }
  State state() const { return state_; }
  const SessionRef& session() const { return session_; }
  wire::Lane lane() const { return lane_; }
  std::uint32_t socket_index() const { return connection_->security().socket_index; }  // of its lane
  transport::Connection& connection() { return *connection_; }
  // Of a frame of `bytes` as it travels.
  std::uint64_t link_bytes(std::uint64_t bytes) const { return bytes + seal_bytes_; }
  // Whether the last wait found that its descriptor has something to say.
  bool ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }
  // Whether the last poll() of its connection filled the room that it was given.
  bool has_more() const { return has_more_; }
  void set_has_more(bool more) { has_more_ = more; }
  // Of kMute: for the hello; of kOpen: for the frame that has begun to come; of kClosing: for the rest. max(): none.
  TimePoint deadline() const;
  std::string name() const;  // "127.0.0.1:50122 (lane latency, session 3 of box7)"

  // kMute -> kOpen: sends the welcome with the lane's first grant. False, and nothing is sent: this socket of the lane
  // is connected already.
  bool open(SessionRef session, wire::Lane lane);
  // Frames are taken from these from now on; those on their way go back to where they came from.
  void use(FramePool& frames) { frames_ = &frames; }
  // -> kClosing: says why (unless it is a plain goodbye), then goodbye. Sends what is queued until `deadline`.
  void close(const Error* why, TimePoint deadline);
  // -> kClosing without a word: kClosed comes as the next event, which no descriptor announces.
  void abort();
  bool aborted() const { return state_ == State::kClosing && deadline_ == TimePoint::max(); }
  // Set where it was aborted because the peer does not read what it is sent (kRefused): its session ends by that.
  const std::optional<Error>& cut_off_reason() const { return cut_off_reason_; }

  // Of kOpen's bulk lane, after the connection was polled: its replies are paced while decode batches come.
  void follow_pace(const transport::DecodeActivity& decode, TimePoint now);

  // Of kOpen, after the connection was polled. kDeadline: the frame that has begun to come is too slow; names the lane.
  Status check_unfinished(const FrameTimeLimit& limit);

  // A kBatch or kSlab frame of `bytes` came; credit is counted as it travels. kRefused: more than was granted.
  // kCorrupt: its sequence does not rise.
  Status take_credit(std::uint64_t bytes, std::uint64_t sequence);
  // The frame's memory is free again, or will be before the peer can have sent the next one: its credit travels with
  // the next frame out, or by flush_credit(). That tells of pieces of slabs, which are many and small, when an eighth
  // of the lane's grant has come together, or none of them is held any more.
  void return_credit(std::uint64_t bytes);
  void flush_credit();

  // Each sends one frame, or, when the peer does not read what it is sent, aborts the connection.
  void send_plain(wire::FrameType type) { send_plain(type, next_sequence_++); }
  void send_plain(wire::FrameType type, std::uint64_t sequence);
  void send_error(std::uint64_t sequence, const Error& error);
  // Takes a reply as the runner left it. A peer that leaves more replies unread than its credit can account for is cut
  // off: they lie in memory that is set aside for so many.
  void send_reply(const Work& work, OutFramePtr reply);

  // Events of the transport.
  void sent(transport::SendTicket ticket);
  void closed();

  // A frame that others read: the connection lives until release().
  void hold() { ++held_; }
  void release(std::span<const std::byte> frame);
  // Nothing refers to it any more.
  bool finished() const { return state_ == State::kClosed && held_ == 0; }
  bool all_sent() const { return open_sends_.empty(); }

  std::vector<Work*>& works() { return works_; }

 private:
  struct OpenSend {
    transport::SendTicket ticket = 0;
    OutFramePtr frame;
    FramePool* from = nullptr;
  };

  // frame->builder holds the sections, begun by begin().
  void begin(OutFrame& frame, wire::FrameType type, std::uint64_t sequence);
  void send(OutFramePtr frame);
  bool credit_is_due() const;
  // The session's other connections may have this one's place.
  void leave_session();
  void cut_off(const std::string& unread);

  const std::uint64_t id_;
  std::unique_ptr<transport::Connection> connection_;
  FramePool* frames_;
  State state_ = State::kMute;
  TimePoint deadline_;            // of kMute and kClosing
  FrameDeadline frame_deadline_;  // of kOpen
  SessionRef session_;
  std::optional<transport::Pacer> pacer_;  // ends before the session, whose link it paces
  bool entered_ = false;                   // session_->connections() counts it
  wire::Lane lane_ = wire::Lane::kLatency;
  std::uint64_t seal_bytes_ = 0;     // transport::ConnectionSecurity::seal_bytes
  LaneCredit granted_;               // that the peer may still use
  LaneCredit to_grant_;              // returned and not told yet
  std::uint64_t last_sequence_ = 0;  // that came with a frame that uses credit
  std::uint64_t next_sequence_ = 1;  // of our own frames that answer none
  std::size_t held_ = 0;
  bool has_more_ = false;
  bool ready_ = true;  // accepted just now: perhaps its hello came with it
  std::vector<OpenSend> open_sends_;
  std::uint64_t unread_bytes_ = 0;  // held by replies in open_sends_
  std::optional<Error> cut_off_reason_;
  std::vector<Work*> works_;  // queued or running
};

}  // namespace terrace::node
