#include "common/transport/recording/replay_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/wire/messages.h"

namespace terrace::transport {
namespace {

AlignedBuffer gather(std::span<const Part> parts) {
  std::size_t size = 0;
  for (const Part part : parts) size += part.size();
  AlignedBuffer all = AlignedBuffer::allocate(size).value();
  std::byte* to = all.data();
  for (const Part part : parts) to = std::copy(part.begin(), part.end(), to);
  return all;
}

std::uint64_t frame_bytes(const wire::Frame& frame) { return wire::kHeaderBytes + frame.header.body_length; }

bool uses_credit(const wire::Frame& frame) {
  return frame.header.type == wire::FrameType::kBatch || frame.header.type == wire::FrameType::kSlab;
}

// Answers a frame of the live end, the one with its sequence.
bool is_answer(const wire::FrameHeader& header) {
  return header.type == wire::FrameType::kReply || header.type == wire::FrameType::kBusy ||
         (header.type == wire::FrameType::kError && header.sequence != 0);
}

std::uint32_t range_of(const wire::Frame& frame) {
  const wire::Section* section = frame.find(wire::SectionTag::kReply);
  wire::ReplyInfo info;
  if (section == nullptr || section->data.size() != sizeof info) return 0;
  std::memcpy(&info, section->data.data(), sizeof info);
  return info.range_index;
}

}  // namespace

Result<std::unique_ptr<Connection>> ReplayConnection::create(std::shared_ptr<ReplayLog> log, std::uint32_t connection,
                                                             PlayedEnd played, std::size_t max_open_sends) {
  TERRACE_ASSIGN_OR_RETURN(EventFd event, EventFd::create());
  return std::unique_ptr<Connection>(
      new ReplayConnection(std::move(log), connection, played, max_open_sends, std::move(event)));
}

ReplayConnection::ReplayConnection(std::shared_ptr<ReplayLog> log, std::uint32_t connection, PlayedEnd played,
                                   std::size_t max_open_sends, EventFd event)
    : log_(std::move(log)),
      connection_(connection),
      script_(log_->script(connection, played)),
      event_(std::move(event)),
      sends_(max_open_sends),
      matched_(script_.live.size()) {
  if (script_.live.empty()) log_->connection_done();
}

ConnectionSecurity ReplayConnection::security() const {
  ConnectionSecurity security;
  security.proven = true;
  security.session = log_->identity().session;
  if (!script_.played.empty()) security.lane = static_cast<std::uint8_t>(script_.played.front().frame.header.lane);
  return security;
}

std::string ReplayConnection::peer_name() const { return fmt::format("recording:{}", connection_); }

// ---- what the live end sends ---------------------------------------------------------------------------------------

Result<SendTicket> ReplayConnection::send(std::span<const Part> parts) {
  if (state_ != State::kOpen) return Error(ErrorCode::kPeerGone, reason_.text());
  auto ticket = sends_.push(parts);
  if (!ticket.ok()) return ticket.error().in(peer_name());
  const AlignedBuffer bytes = gather(parts);
  sends_.consume(bytes.size());
  stats_.bytes_sent += bytes.size();
  ++stats_.frames_sent;
  take_live(bytes.bytes());
  return ticket;
}

void ReplayConnection::take_live(std::span<const std::byte> bytes) {
  const auto decoded = wire::decode_frame(bytes);
  if (!decoded.ok()) return log_->compare(connection_, wire::Frame(), nullptr);
  const wire::FrameHeader& header = decoded->header;
  credit_frames_ += header.credit_frames;
  credit_bytes_ += header.credit_bytes;
  if (header.type == wire::FrameType::kWelcome) {
    if (const auto welcome = wire::read_welcome(*decoded); welcome.ok()) {
      credit_frames_ += welcome->credit_frames;
      credit_bytes_ += welcome->credit_bytes;
    }
  }
  if (header.type == wire::FrameType::kPing) {
    wire::FrameHeader pong = header;
    pong.type = wire::FrameType::kPong;
    wire::FrameBuilder builder;
    builder.begin(pong);
    answers_.push_back(gather(builder.finish()));
  }
  if (!is_substance(header.type)) return;
  const wire::Frame* recorded = counterpart(*decoded);
  log_->compare(connection_, *decoded, recorded);
  ++n_live_;
  if (recorded == nullptr) return;
  if (uses_credit(*decoded)) sequence_today_[recorded->header.sequence] = header.sequence;
  matched_[static_cast<std::size_t>(recorded - script_.live.data())] = true;
  if (++n_matched_ == script_.live.size()) log_->connection_done();
}

// Replies may come in any order: the one to the same range of the same batch. Everything else comes in its order.
const wire::Frame* ReplayConnection::counterpart(const wire::Frame& live) {
  for (std::size_t i = 0; i < script_.live.size(); ++i) {
    const wire::Frame& recorded = script_.live[i];
    if (matched_[i] || recorded.header.type != live.header.type) continue;
    if (!is_answer(live.header)) return &recorded;
    if (recorded.header.sequence == live.header.sequence && range_of(recorded) == range_of(live)) return &recorded;
  }
  return nullptr;
}

// ---- what is played ------------------------------------------------------------------------------------------------

bool ReplayConnection::may_play(const PlayedFrame& next) const {
  const wire::FrameHeader& header = next.frame.header;
  if (is_answer(header)) return sequence_today_.contains(header.sequence);
  return n_live_ >= next.live_before && has_credit(next.frame);
}

bool ReplayConnection::has_credit(const wire::Frame& frame) const {
  return !uses_credit(frame) || (credit_frames_ >= 1 && credit_bytes_ >= frame_bytes(frame));
}

void ReplayConnection::use_credit(const wire::Frame& frame) {
  if (!uses_credit(frame)) return;
  credit_frames_ -= 1;
  credit_bytes_ -= frame_bytes(frame);
}

// The recorded frame with this session's numbers.
AlignedBuffer ReplayConnection::as_today(const wire::Frame& recorded) const {
  wire::FrameHeader header = recorded.header;
  header.session = log_->identity().session;
  if (is_answer(header)) header.sequence = sequence_today_.at(header.sequence);
  wire::FrameBuilder builder;
  builder.begin(header);
  for (const wire::Section& section : recorded.all()) builder.add(section.tag, section.detail, section.data);
  return gather(builder.finish());
}

bool ReplayConnection::ready() const {
  if (state_ == State::kClosed || sends_.has_sent() || !answers_.empty()) return true;
  return state_ == State::kOpen && next_played_ < script_.played.size() && may_play(script_.played[next_played_]);
}

std::size_t ReplayConnection::poll(std::span<Event> out) {
  if (state_ == State::kReported) return 0;
  std::size_t n = sends_.report_sent(out);
  while (n < out.size() && state_ == State::kOpen) {
    if (!answers_.empty()) {
      lent_.push_back(std::move(answers_.front()));
      answers_.pop_front();
    } else if (next_played_ < script_.played.size() && may_play(script_.played[next_played_])) {
      const wire::Frame& recorded = script_.played[next_played_++].frame;
      lent_.push_back(as_today(recorded));
      use_credit(recorded);
    } else {
      break;
    }
    const std::span<const std::byte> frame = lent_.back().bytes();
    stats_.bytes_received += frame.size();
    ++stats_.frames_received;
    out[n++] = {Event::Kind::kReceived, 0, frame};
  }
  if (state_ == State::kClosed && sends_.report_closed(out.subspan(n))) {
    state_ = State::kReported;
    ++n;
  }
  return n;
}

void ReplayConnection::release(std::span<const std::byte> frame) {
  const auto lent = std::find_if(lent_.begin(), lent_.end(),
                                 [&](const AlignedBuffer& buffer) { return buffer.data() == frame.data(); });
  TERRACE_CHECK(lent != lent_.end(), "release() of what was not received here");
  *lent = std::move(lent_.back());
  lent_.pop_back();
}

// An eventfd may always be written: POLLOUT ends a wait at once.
short ReplayConnection::wait_events() { return static_cast<short>(ready() ? POLLIN | POLLOUT : POLLIN); }

void ReplayConnection::close() {
  if (state_ != State::kOpen) return;
  state_ = State::kClosed;
  reason_ = Error(ErrorCode::kPeerGone, peer_name() + ": closed by this side");
  sends_.give_up();
}

}  // namespace terrace::transport
