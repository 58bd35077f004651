#include "common/transport/faulty/faulty_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/transport/faulty/change_frame.h"

namespace terrace::transport {
namespace {

// Events of the inner connection at once, and how often in one poll(): a fast peer whose frames are all delayed does
// not keep the owner from its other connections.
constexpr std::size_t kEvents = 16;
constexpr int kMostRounds = 64;

constexpr FaultClock::TimePoint kNever = FaultClock::TimePoint::max();

}  // namespace

Result<std::unique_ptr<Connection>> FaultyConnection::wrap(std::unique_ptr<Connection> inner,
                                                           std::shared_ptr<FaultState> state, const FaultClock& clock,
                                                           std::size_t max_open_sends) {
  TERRACE_ASSIGN_OR_RETURN(Wake wake, Wake::create());
  return std::unique_ptr<Connection>(
      new FaultyConnection(std::move(inner), std::move(state), clock, max_open_sends, std::move(wake)));
}

FaultyConnection::FaultyConnection(std::unique_ptr<Connection> inner, std::shared_ptr<FaultState> state,
                                   const FaultClock& clock, std::size_t max_open_sends, Wake wake)
    : ForwardingConnection(std::move(inner)),
      faults_(std::move(state)),
      clock_(clock),
      max_open_sends_(max_open_sends),
      cuts_before_(faults_->cuts_everywhere()),
      wake_(std::move(wake)) {
  last_due_.fill(FaultClock::TimePoint::min());
}

// ---- out -----------------------------------------------------------------------------------------------------------

Result<SendTicket> FaultyConnection::send(std::span<const Part> parts) {
  follow_cut_everywhere();
  if (state_ != State::kOpen) return Error(ErrorCode::kPeerGone, reason_.text());
  if (outgoing_.size() == max_open_sends_)
    return Error(ErrorCode::kBusy,
                 fmt::format("{}: {} sends are open, no more are allowed", inner_->peer_name(), outgoing_.size()));
  const Verdict verdict = judge(Direction::kOut);
  Outgoing& frame = outgoing_.emplace_back();
  frame.number = verdict.frame;
  frame.due = due_time(Direction::kOut, verdict);
  if (verdict.changes_bytes()) {
    frame.changed = changed_frame(parts, verdict);
    frame.parts.assign(1, frame.changed.bytes());
  } else {
    frame.parts.assign(parts.begin(), parts.end());
  }
  frame.cut_behind = verdict.cut_after.has_value();
  cutting_ = cutting_ || frame.cut_behind;
  if (verdict.drop || (verdict.changes_bytes() && frame.changed.size() == 0)) frame.progress = Progress::kEnded;
  if (frame.cut_behind && frame.progress == Progress::kEnded)
    cut(Direction::kOut, frame.number);
  else
    forward();
  return ++last_ticket_;
}

// What is due goes to the inner connection, in order; nothing passes a frame that waits.
void FaultyConnection::forward() {
  if (state_ != State::kOpen) return;
  for (Outgoing& frame : outgoing_) {
    if (frame.progress == Progress::kWaiting) {
      if (frame.due == kNever || frame.due > clock_.now()) return;
      const auto ticket = inner_->send(frame.parts);
      if (!ticket.ok() && ticket.error().code() == ErrorCode::kBusy) return;
      frame.progress = ticket.ok() ? Progress::kWithInner : Progress::kEnded;
    }
    if (frame.cut_behind) return;
  }
}

// The inner connection reports in the order in which it was given frames.
void FaultyConnection::end_oldest_forwarded() {
  const auto frame = std::find_if(outgoing_.begin(), outgoing_.end(),
                                  [](const Outgoing& open) { return open.progress == Progress::kWithInner; });
  if (frame == outgoing_.end()) return;
  frame->progress = Progress::kEnded;
  if (frame->cut_behind) cut(Direction::kOut, frame->number);
}

std::size_t FaultyConnection::report_sent(std::span<Event> out) {
  std::size_t n = 0;
  while (n < out.size() && !outgoing_.empty() && outgoing_.front().progress == Progress::kEnded) {
    out[n++] = {Event::Kind::kSent, last_ticket_ - outgoing_.size() + 1, {}};
    outgoing_.pop_front();
  }
  return n;
}

// ---- in ------------------------------------------------------------------------------------------------------------

std::size_t FaultyConnection::poll(std::span<Event> out) {
  if (state_ == State::kReported) return 0;
  follow_cut_everywhere();
  forward();
  std::size_t n = report_sent(out);
  for (int round = 0; round < kMostRounds; ++round) {
    const std::size_t most = std::min(kEvents, out.size());
    const std::size_t read = read_inner(most);
    n += deliver(out.subspan(n));
    if (read < most || n == out.size()) break;
  }
  n += report_sent(out.subspan(n));
  return n + report_closed(out.subspan(n));
}

std::size_t FaultyConnection::read_inner(std::size_t most) {
  if (state_ != State::kOpen || inner_closed_) return 0;
  std::array<Event, kEvents> events;
  const std::size_t n = inner_->poll(std::span(events).first(most));
  for (const Event& event : std::span(events).first(n)) {
    if (state_ == State::kOpen && !inner_closed_)
      take(event);
    else if (event.kind == Event::Kind::kReceived)
      inner_->release(event.frame);  // behind the frame at which the link was cut
  }
  return n;
}

void FaultyConnection::take(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kSent:
      return end_oldest_forwarded();
    case Event::Kind::kReceived:
      return take_frame(event.frame);
    case Event::Kind::kClosed:
      inner_closed_ = inner_->close_reason();
      for (Outgoing& frame : outgoing_) frame.progress = Progress::kEnded;
  }
}

void FaultyConnection::take_frame(std::span<const std::byte> frame) {
  const Verdict verdict = judge(Direction::kIn);
  if (verdict.cut_after || verdict.drop) inner_->release(frame);
  if (verdict.cut_after) return cut(Direction::kIn, verdict.frame);
  if (verdict.drop) return;
  Incoming& incoming = incoming_.emplace_back();
  incoming.inner = incoming.frame = frame;
  incoming.due = due_time(Direction::kIn, verdict);
  if (!verdict.changes_bytes()) return;
  incoming.changed = changed_frame({&incoming.inner, 1}, verdict);
  incoming.frame = incoming.changed.bytes();
  if (!incoming.frame.empty()) return;
  inner_->release(frame);
  incoming_.pop_back();
}

// Frames that are due, in order.
std::size_t FaultyConnection::deliver(std::span<Event> out) {
  std::size_t n = 0;
  for (; n < out.size() && !incoming_.empty(); ++n) {
    Incoming& next = incoming_.front();
    if (next.due == kNever || next.due > clock_.now()) break;
    out[n] = {Event::Kind::kReceived, 0, next.frame};
    if (next.changed.size() > 0) lent_.push_back({next.inner, std::move(next.changed)});
    incoming_.pop_front();
  }
  return n;
}

void FaultyConnection::release(std::span<const std::byte> frame) {
  const auto lent = std::find_if(lent_.begin(), lent_.end(),
                                 [&](const Lent& candidate) { return candidate.changed.data() == frame.data(); });
  if (lent == lent_.end()) return inner_->release(frame);
  inner_->release(lent->inner);
  *lent = std::move(lent_.back());
  lent_.pop_back();
}

// ---- ends ----------------------------------------------------------------------------------------------------------

std::size_t FaultyConnection::report_closed(std::span<Event> out) {
  if (state_ == State::kOpen && inner_closed_ && incoming_.empty()) close_because(*inner_closed_);
  if (state_ != State::kClosed || out.empty() || !outgoing_.empty()) return 0;
  out[0] = {Event::Kind::kClosed, 0, {}};
  state_ = State::kReported;
  return 1;
}

void FaultyConnection::close() {
  close_because(Error(ErrorCode::kPeerGone, inner_->peer_name() + ": closed by this side"));
}

// As a link that ends: what came before the incoming frame is still delivered.
void FaultyConnection::cut(Direction direction, std::uint64_t frame) {
  const Error why(ErrorCode::kPeerGone,
                  fmt::format("{}: cut by a planted fault at the {} frame {}", inner_->peer_name(),
                              direction == Direction::kOut ? "outgoing" : "incoming", frame));
  if (direction == Direction::kOut) return close_because(why);
  inner_closed_ = why;
  inner_->close();
  for (Outgoing& open : outgoing_) open.progress = Progress::kEnded;
}

void FaultyConnection::follow_cut_everywhere() {
  if (cutting_ || faults_->cuts_everywhere() == cuts_before_) return;
  close_because(Error(ErrorCode::kPeerGone, inner_->peer_name() + ": cut by a planted fault on another connection"));
}

// The inner connection reads nothing any more that send() borrowed.
void FaultyConnection::close_because(Error reason) {
  if (state_ != State::kOpen) return;
  state_ = State::kClosed;
  reason_ = std::move(reason);
  inner_->close();
  for (Outgoing& frame : outgoing_) frame.progress = Progress::kEnded;
  for (const Incoming& frame : incoming_) inner_->release(frame.inner);
  incoming_.clear();
}

// ---- waiting -------------------------------------------------------------------------------------------------------

int FaultyConnection::wait_fd() {
  if (state_ == State::kReported) return -1;
  if (!holds_something()) return inner_->wait_fd();
  wake_.arm(inner_->wait_fd(), inner_->wait_events(), time_to_next());
  return wake_.fd();
}

short FaultyConnection::wait_events() { return holds_something() ? POLLIN : inner_->wait_events(); }

// Something that the inner descriptor knows nothing of.
bool FaultyConnection::holds_something() const {
  return state_ != State::kOpen || inner_closed_ || !incoming_.empty() || faults_->cuts_everywhere() != cuts_before_ ||
         std::any_of(outgoing_.begin(), outgoing_.end(),
                     [](const Outgoing& frame) { return frame.progress != Progress::kWithInner; });
}

std::optional<std::chrono::nanoseconds> FaultyConnection::time_to_next() const {
  constexpr std::chrono::nanoseconds kNow{0};
  if (state_ != State::kOpen || (inner_closed_ && incoming_.empty())) return kNow;
  if (!cutting_ && faults_->cuts_everywhere() != cuts_before_) return kNow;
  if (!outgoing_.empty() && outgoing_.front().progress == Progress::kEnded) return kNow;
  TimePoint next = incoming_.empty() ? kNever : incoming_.front().due;
  const auto waiting = std::find_if(outgoing_.begin(), outgoing_.end(),
                                    [](const Outgoing& frame) { return frame.progress == Progress::kWaiting; });
  if (waiting != outgoing_.end() && !cutting_) next = std::min(next, waiting->due);
  if (next == kNever) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(next - std::min(next, clock_.now()), kNow);
}

// ---- faults --------------------------------------------------------------------------------------------------------

Verdict FaultyConnection::judge(Direction direction) {
  Verdict verdict = faults_->judge(direction);
  const auto way = static_cast<std::size_t>(direction);
  stalled_[way] = verdict.stall = verdict.stall || stalled_[way];
  starved_[way] = verdict.starve = verdict.starve || starved_[way];
  return verdict;
}

FaultClock::TimePoint FaultyConnection::due_time(Direction direction, const Verdict& verdict) {
  TimePoint& last = last_due_[static_cast<std::size_t>(direction)];
  if (verdict.stall)
    last = kNever;
  else if (verdict.delay.count() > 0 && last != kNever)
    last = std::max(last, clock_.now() + std::chrono::duration_cast<TimePoint::duration>(verdict.delay));
  return last;
}

}  // namespace terrace::transport
