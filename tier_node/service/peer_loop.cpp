#include "tier_node/service/peer_loop.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

namespace terrace::node {
namespace {

// Events of one connection before the others get their turn.
constexpr std::size_t kEventsPerTurn = 16;

}  // namespace

Result<int> PeerLoop::make_event_fd() {
  const int event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_fd < 0) return Error(ErrorCode::kIo, fmt::format("eventfd: {}", std::generic_category().message(errno)));
  return event_fd;
}

PeerLoop::PeerLoop(SlabLoader& loader, const Logger& log, const DataServerOptions& options, int event_fd,
                   std::size_t events_in_turn)
    : loader_(loader), log_(log), options_(options), events_in_turn_(events_in_turn), event_fd_(event_fd) {}

PeerLoop::~PeerLoop() { ::close(event_fd_); }

void PeerLoop::wake() {
  const std::uint64_t one = 1;
  // Full is as good as written: the reader wakes either way.
  [[maybe_unused]] const ssize_t written = ::write(event_fd_, &one, sizeof one);
}

void PeerLoop::request_stop() {
  stop_requested_.store(true, std::memory_order_release);
  wake();
}

void PeerLoop::loop() {
  bool more = false;
  while (true) {
    const Ready ready = wait(more);
    if (stop_requested_.load(std::memory_order_acquire) && !stopping_) begin_stop();
    if (ready.event) {
      take_returned();
      on_wake();
    }
    more = ready.listener && on_listening();
    more |= serve_some();
    for (const auto& peer : peers_) {
      follow_session(*peer);
      check_deadline(*peer);
      peer->flush_credit();
      more |= peer->aborted();
    }
    more |= end_turn();
    std::erase_if(peers_, [](const auto& peer) { return peer->finished(); });
    if (stopping_ && peers_.empty()) return;
  }
}

void PeerLoop::begin_stop() {
  stopping_ = true;
  on_stop();
  const Error why(ErrorCode::kPeerGone, "this node is shutting down");
  for (const auto& peer : peers_) {
    cancel_works(*peer);
    peer->close(&why, now() + options_.stop_grace);
  }
}

// Blocks in one call, and costs no other call for whoever has nothing to say. A negative descriptor is not waited for.
PeerLoop::Ready PeerLoop::wait(bool more_to_do) {
  poll_fds_.clear();
  poll_fds_.push_back({event_fd_, POLLIN, 0});
  poll_fds_.push_back({listening_fd(), POLLIN, 0});
  for (const auto& peer : peers_) {
    const bool open = peer->state() != Peer::State::kClosed;
    poll_fds_.push_back({open ? peer->connection().wait_fd() : -1, peer->connection().wait_events(), 0});
  }
  const bool any = wait_for_any(more_to_do);
  for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i]->set_ready(any && poll_fds_[2 + i].revents != 0);
  Ready ready;
  ready.event = any && poll_fds_[0].revents != 0;
  ready.listener = any && poll_fds_[1].revents != 0;
  if (ready.event) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(event_fd_, &count, sizeof count);
  }
  return ready;
}

// Of poll_fds_: whether one has something to say.
bool PeerLoop::wait_for_any(bool more_to_do) {
  const auto ask = [this](int timeout_ms) { return ::poll(poll_fds_.data(), poll_fds_.size(), timeout_ms) > 0; };
  if (more_to_do) return ask(0);
  while (stays_awake())
    if (ask(0)) return true;
  return ask(next_timeout_ms());
}

int PeerLoop::next_timeout_ms() const {
  TimePoint next = next_time();
  for (const auto& peer : peers_) next = std::min(next, peer->deadline());
  if (next == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

Peer* PeerLoop::find(std::uint64_t id) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) { return peer->id() == id; });
  return found == peers_.end() ? nullptr : found->get();
}

// Whoever has something to say; of those that bring much at once one, in turn: between two of their turns decode
// batches are looked for. True: there may be more.
bool PeerLoop::serve_some() {
  bool more = false;
  Peer* next = nullptr;  // the first after last_served_, else the first of all
  for (const auto& peer : peers_) {
    if (is_first(*peer)) {
      more |= serve(*peer);
    } else if (has_something(*peer)) {
      more |= peer->has_more();
      if (next == nullptr || (next->id() <= last_served_ && peer->id() > last_served_)) next = peer.get();
    }
  }
  if (next == nullptr) return more;
  last_served_ = next->id();
  return serve(*next) || more;
}

bool PeerLoop::is_first(const Peer& peer) {
  return peer.state() != Peer::State::kOpen || peer.lane() == wire::Lane::kLatency;
}

// Besides what the wait found: what was sent just now, or closed here, tells of itself.
bool PeerLoop::has_something(Peer& peer) {
  if (peer.state() == Peer::State::kClosed) return false;
  return peer.ready() || peer.has_more() || peer.aborted() || (peer.connection().wait_events() & POLLOUT) != 0;
}

// Of one that has not said hello one: what follows the hello may be another thread's to read.
std::size_t PeerLoop::most_events(const Peer& peer) const {
  if (peer.state() == Peer::State::kMute) return 1;
  return is_first(peer) ? kEventsPerTurn : events_in_turn_;
}

bool PeerLoop::serve(Peer& peer) {
  if (!has_something(peer)) return false;
  std::array<transport::Event, kEventsPerTurn> events;
  const std::size_t most = most_events(peer);
  const std::size_t n_events = peer.connection().poll(std::span(events).first(most));
  for (const transport::Event& event : std::span(events).first(n_events)) {
    switch (event.kind) {
      case transport::Event::Kind::kSent:
        peer.sent(event.ticket);
        break;
      case transport::Event::Kind::kReceived:
        on_frame(peer, event.frame);
        break;
      case transport::Event::Kind::kClosed:
        on_closed(peer);
        break;
    }
  }
  after_poll(peer);
  peer.set_has_more(n_events == most);
  return peer.has_more();
}

void PeerLoop::check_deadline(Peer& peer) {
  if (peer.state() == Peer::State::kOpen) {
    if (const Status in_time = peer.check_unfinished(options_.frame_time); !in_time.ok()) fail(peer, in_time.error());
  } else if (peer.state() == Peer::State::kMute && peer.deadline() <= now()) {
    const Error why(ErrorCode::kDeadline, fmt::format("no hello came within {} ms", options_.hello_timeout.count()));
    end_peer(peer, &why);
  } else if (peer.state() == Peer::State::kClosing && peer.deadline() <= now()) {
    peer.abort();
  }
}

void PeerLoop::follow_session(Peer& peer) {
  if (peer.state() != Peer::State::kOpen || !peer.session()->ended()) return;
  end_peer(peer, peer.session()->closed_by_wish() ? nullptr : &peer.session()->end_reason());
}

void PeerLoop::log_end(const Peer& peer, const Error& why) {
  if (peer.session()) return log_.info("{}: closed: {}", peer.name(), why.text());
  if (const auto left_out = strangers_.happened())
    log_.info("{}: closed: {}{}", peer.name(), why.text(), and_left_out(*left_out));
}

void PeerLoop::end_peer(Peer& peer, const Error* why) {
  if (why != nullptr) log_end(peer, *why);
  cancel_works(peer);
  peer.close(why, now() + options_.linger);
}

// What is wrong with a connection is wrong with its session.
void PeerLoop::fail(Peer& peer, const Error& error) {
  if (peer.session()) {
    peer.session()->end(error);
    follow_session(peer);
  } else {
    end_peer(peer, &error);
  }
}

void PeerLoop::on_closed(Peer& peer) {
  cancel_works(peer);
  const bool without_goodbye = peer.state() == Peer::State::kOpen;
  peer.closed();
  const Error& why = peer.cut_off_reason() ? *peer.cut_off_reason() : peer.connection().close_reason();
  if (why.code() == ErrorCode::kPeerGone) {
    if (without_goodbye) end_wait_for_slabs(peer, why);
    return end_if_abandoned(peer, false);
  }
  // The stream holds no frames, or nobody reads it: nothing can be answered on it, and the session is at its end as
  // with any bad frame.
  log_end(peer, why);
  if (const SessionRef& session = peer.session(); session && !stopping_) session->end(why);
}

// What was on its way is lost, and nothing says which slabs that were: an Assign that waits for slabs would wait until
// whoever called it gives it up. Not kPeerGone, which says of a call that the node is not there.
void PeerLoop::end_wait_for_slabs(const Peer& peer, const Error& why) {
  if (!peer.session() || peer.lane() != wire::Lane::kWeights) return;
  const AssignmentRef waits = peer.session()->pending_assign();
  if (waits && waits->wants_slabs())
    peer.session()->abandon_assign(waits,
                                   Error(ErrorCode::kBusy, fmt::format("a weights connection ended: {}", why.text())));
}

// Without a connection a session cannot be used, and a coordinator that comes back opens a new one (docs/wire.md 5). So
// what a killed coordinator held is free when its last socket closes, not when the lease is over.
void PeerLoop::end_if_abandoned(const Peer& peer, bool goodbye) {
  const SessionRef& session = peer.session();
  if (!session || session->ended() || stopping_ || session->connections().any()) return;
  if (goodbye)
    session->close();
  else
    session->end(Error(ErrorCode::kPeerGone, "its last data connection is gone"));
}

void PeerLoop::on_frame(Peer& peer, std::span<const std::byte> bytes) {
  peer.hold();
  const bool listens = peer.state() == Peer::State::kMute || peer.state() == Peer::State::kOpen;
  if (!listens) return peer.release(bytes);
  if (peer.session()) peer.session()->counters().bytes_received += peer.link_bytes(bytes.size());

  const auto frame = wire::decode_frame(bytes);
  const Status done = frame.ok() ? dispatch(peer, *frame, bytes) : Status(frame.error());
  if (done.ok()) return;
  fail(peer, done.error());
  peer.release(bytes);
}

// Releases `bytes`, or hands them on, unless it returns an error.
Status PeerLoop::dispatch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) {
  const wire::FrameHeader& header = frame.header;
  if (peer.state() == Peer::State::kMute) {
    TERRACE_RETURN_IF_ERROR(on_hello(peer, frame));
    peer.release(bytes);
    return {};
  }
  if (header.session != peer.session()->id() || header.lane != peer.lane())
    return Error(
        ErrorCode::kRefused,
        fmt::format("a {} frame names session {:016x}, lane {} on a connection of another session or lane, {}",
                    wire::name(header.type), header.session, wire::name(header.lane), wire::name(peer.lane())));
  switch (header.type) {
    case wire::FrameType::kBatch:
      return on_batch(peer, frame, bytes);
    case wire::FrameType::kSlab:
      return on_slab(peer, frame, bytes);
    case wire::FrameType::kPing:
      peer.send_plain(wire::FrameType::kPong, header.sequence);
      break;
    case wire::FrameType::kPong:
    case wire::FrameType::kCredit:  // replies need none: a batch carries its reply's
      break;
    case wire::FrameType::kCancel:
      on_cancel(peer, header.sequence);
      break;
    case wire::FrameType::kError:
      TERRACE_RETURN_IF_ERROR(on_error(peer, frame));
      break;
    case wire::FrameType::kClose:
      end_peer(peer, nullptr);
      end_if_abandoned(peer, true);
      break;
    default:
      return Error(ErrorCode::kRefused, fmt::format("a coordinator does not send {} frames", wire::name(header.type)));
  }
  peer.release(bytes);
  return {};
}

// With sequence 0 it is of the connection, and the last word on it as a close frame is (docs/wire.md 4). Any other ends
// nothing and needs no credit, so that as many may come as the peer likes.
Status PeerLoop::on_error(Peer& peer, const wire::Frame& frame) {
  TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
  const bool last_word = frame.header.sequence == 0;
  const std::optional<std::uint64_t> left_out = last_word ? 0 : told_errors_.happened();
  if (left_out) log_.warn("{}: the coordinator says: {}{}", peer.name(), message.text, and_left_out(*left_out));
  if (last_word) {
    end_peer(peer, nullptr);
    end_if_abandoned(peer, false);
  }
  return {};
}

Status PeerLoop::on_slab(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) {
  if (peer.lane() != wire::Lane::kWeights)
    return Error(ErrorCode::kRefused, fmt::format("a slab piece came on lane {}", wire::name(peer.lane())));
  TERRACE_RETURN_IF_ERROR(peer.take_credit(bytes.size(), frame.header.sequence));
  TERRACE_ASSIGN_OR_RETURN(const wire::SlabPieceView piece, wire::read_slab_piece(frame));
  loader_.receive({peer.session(), piece, this, peer.id(), bytes});
  return {};
}

void PeerLoop::piece_done(std::uint64_t peer, std::span<const std::byte> frame) {
  // Woken under the lock: a loop that stops waits for nothing but its frames, and is gone once it has taken the last.
  const std::lock_guard lock(returns_mutex_);
  const bool first = returns_.empty();
  returns_.push_back({peer, frame});
  if (first) wake();  // else somebody has, and what is here is taken with the rest
}

void PeerLoop::take_returned() {
  {
    const std::lock_guard lock(returns_mutex_);
    handled_returns_.swap(returns_);
  }
  for (const Returned& returned : handled_returns_) {
    Peer* const peer = find(returned.peer);
    peer->return_credit(returned.frame.size());
    peer->release(returned.frame);
  }
  handled_returns_.clear();
}

}  // namespace terrace::node
