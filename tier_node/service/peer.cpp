#include "tier_node/service/peer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace terrace::node {
namespace {

// An error frame with the longest text, rounded up: what a coordinator may send without credit.
constexpr std::uint64_t kLargestWithoutCredit = 1024;
// A frame of credit for each piece would cost both ends about what taking the piece does.
constexpr std::uint32_t kCreditParts = 8;

}  // namespace

Peer::Peer(std::uint64_t id, std::unique_ptr<transport::Connection> connection, FramePool& frames, TimePoint deadline)
    : id_(id), connection_(std::move(connection)), frames_(&frames), deadline_(deadline) {}

std::string Peer::name() const {
  if (!session_) return connection_->peer_name();
  const std::string socket = session_->limits().sockets(lane_) > 1 ? fmt::format(", socket {}", socket_index()) : "";
  return fmt::format("{} (lane {}{}, {})", connection_->peer_name(), wire::name(lane_), socket, session_->name());
}

TimePoint Peer::deadline() const {
  switch (state_) {
    case State::kMute:
    case State::kClosing:
      return deadline_;
    case State::kOpen:
      return frame_deadline_.at();
    case State::kClosed:
      break;
  }
  return TimePoint::max();
}

// Frames mostly come whole: the clock is not asked then.
Status Peer::check_unfinished(const FrameTimeLimit& limit) {
  const transport::UnfinishedFrame frame = connection_->unfinished();
  if (frame.bytes == 0) {
    frame_deadline_.clear();
    return {};
  }
  const Status in_time = frame_deadline_.check(frame, limit, std::chrono::steady_clock::now());
  return in_time.ok() ? in_time : in_time.error().in(fmt::format("lane {}", wire::name(lane_)));
}

bool Peer::open(SessionRef session, wire::Lane lane) {
  if (!session->connections().enter(lane, socket_index())) return false;
  entered_ = true;
  session_ = std::move(session);
  lane_ = lane;
  state_ = State::kOpen;
  seal_bytes_ = connection_->security().seal_bytes;
  const SessionLimits& limits = session_->limits();
  granted_ = limits.credit(lane);
  // What the whole grant does not cover cannot come in order: nobody makes us set memory aside for it.
  const std::uint64_t largest = std::min(limits.largest_frame, std::max(granted_.bytes, kLargestWithoutCredit));
  connection_->set_largest_frame(largest);
  OutFramePtr frame = frames_->take();
  begin(*frame, wire::FrameType::kWelcome, next_sequence_++);
  wire::Welcome welcome;
  welcome.largest_frame = largest;
  welcome.credit_frames = granted_.frames;
  welcome.credit_bytes = granted_.bytes;
  wire::add_welcome(frame->builder, welcome);
  send(std::move(frame));
  return true;
}

void Peer::leave_session() {
  if (std::exchange(entered_, false)) session_->connections().leave(lane_, socket_index());
}

void Peer::follow_pace(const transport::DecodeActivity& decode, TimePoint now) {
  if (!pacer_) pacer_.emplace(decode, session_->link_rate());
  pacer_->follow(*connection_, now);
}

void Peer::close(const Error* why, TimePoint deadline) {
  if (state_ == State::kClosing || state_ == State::kClosed) return;
  leave_session();  // before the peer hears of it: its next hello may follow at once
  if (why != nullptr) send_error(0, *why);
  send_plain(wire::FrameType::kClose);
  if (state_ == State::kClosing) return;  // by abort(): the peer reads nothing
  state_ = State::kClosing;
  deadline_ = deadline;
}

void Peer::abort() {
  leave_session();
  connection_->close();
  if (state_ != State::kClosed) state_ = State::kClosing;
  deadline_ = TimePoint::max();
}

Status Peer::take_credit(std::uint64_t bytes, std::uint64_t sequence) {
  if (sequence <= last_sequence_)
    return Error(ErrorCode::kCorrupt, fmt::format("sequence {} on lane {} follows {}; sequences rise", sequence,
                                                  wire::name(lane_), last_sequence_));
  last_sequence_ = sequence;
  if (granted_.frames == 0 || granted_.bytes < link_bytes(bytes))
    return Error(ErrorCode::kRefused,
                 fmt::format("a frame of {} bytes on lane {} has no credit ({} frames, {} bytes are left)",
                             link_bytes(bytes), wire::name(lane_), granted_.frames, granted_.bytes));
  granted_.frames -= 1;
  granted_.bytes -= link_bytes(bytes);
  return {};
}

void Peer::return_credit(std::uint64_t bytes) {
  to_grant_.frames += 1;
  to_grant_.bytes += link_bytes(bytes);
}

bool Peer::credit_is_due() const {
  if (lane_ != wire::Lane::kWeights || held_ == 0) return to_grant_.frames > 0;
  const LaneCredit& all = session_->limits().weights;
  return to_grant_.frames > all.frames / kCreditParts || to_grant_.bytes > all.bytes / kCreditParts;
}

void Peer::flush_credit() {
  if (state_ == State::kOpen && credit_is_due()) send_plain(wire::FrameType::kCredit);
}

void Peer::begin(OutFrame& frame, wire::FrameType type, std::uint64_t sequence) {
  wire::FrameHeader& header = frame.header;
  header = {};
  header.type = type;
  header.flags = seal_bytes_ > 0 ? wire::kFlagNoChecksum : std::uint16_t{0};
  header.lane = lane_;
  header.session = session_ ? session_->id() : 0;
  header.sequence = sequence;
  if (state_ == State::kOpen && type != wire::FrameType::kWelcome) {
    header.credit_frames = to_grant_.frames;
    header.credit_bytes = to_grant_.bytes;
    granted_.frames += to_grant_.frames;
    granted_.bytes += to_grant_.bytes;
    to_grant_ = {};
  }
  frame.builder.begin(header);
}

void Peer::send_plain(wire::FrameType type, std::uint64_t sequence) {
  OutFramePtr frame = frames_->take();
  begin(*frame, type, sequence);
  send(std::move(frame));
}

void Peer::send_error(std::uint64_t sequence, const Error& error) {
  OutFramePtr frame = frames_->take();
  frame->text = error.text();
  begin(*frame, wire::FrameType::kError, sequence);
  wire::add_error(frame->builder, error.code(), frame->text);
  send(std::move(frame));
}

void Peer::send_reply(const Work& work, OutFramePtr reply) {
  const std::uint64_t most = session_->limits().most_unread_bytes(lane_);
  if (reply->held_bytes() > most - unread_bytes_) {
    frames_->give(std::move(reply));
    return cut_off(fmt::format("{} bytes of replies, of at most {}", unread_bytes_, most));
  }
  unread_bytes_ += reply->held_bytes();
  begin(*reply, wire::FrameType::kReply, work.batch.sequence);
  reply->header.layer = work.batch.layer;
  reply->header.epoch = work.batch.epoch;
  reply->builder.begin(reply->header);
  wire::add_reply(reply->builder, reply->reply, reply->form, reply->data, reply->failed_rows);
  send(std::move(reply));
}

void Peer::send(OutFramePtr frame) {
  const auto ticket = connection_->send(frame->builder.finish());
  if (ticket.ok()) {
    if (session_) session_->counters().bytes_sent += link_bytes(frame->builder.bytes());
    open_sends_.push_back({*ticket, std::move(frame), frames_});
    return;
  }
  frames_->give(std::move(frame));
  // Busy: hundreds of frames wait and the peer reads none. Gone: its end comes as an event.
  if (ticket.error().code() == ErrorCode::kBusy) cut_off(fmt::format("{} frames", open_sends_.size()));
}

void Peer::cut_off(const std::string& unread) {
  if (!cut_off_reason_)
    cut_off_reason_ = Error(ErrorCode::kRefused, fmt::format("lane {}: it does not read what it is sent: {} wait",
                                                             wire::name(lane_), unread));
  abort();
}

void Peer::sent(transport::SendTicket ticket) {
  const auto open = std::find_if(open_sends_.begin(), open_sends_.end(),
                                 [&](const OpenSend& candidate) { return candidate.ticket == ticket; });
  if (open == open_sends_.end()) return;
  unread_bytes_ -= open->frame->held_bytes();
  open->from->give(std::move(open->frame));
  open_sends_.erase(open);
}

void Peer::closed() {
  leave_session();
  state_ = State::kClosed;
  for (OpenSend& open : open_sends_) open.from->give(std::move(open.frame));
  open_sends_.clear();
  unread_bytes_ = 0;
}

void Peer::release(std::span<const std::byte> frame) {
  connection_->release(frame);
  --held_;
}

}  // namespace terrace::node
