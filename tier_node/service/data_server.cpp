#include "tier_node/service/data_server.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace terrace::node {
namespace {

// Events of one connection before the others get their turn. A frame of the bulk or weights lane takes tens of
// microseconds to be read and opened, so that is one, and no other such lane's in the same turn.
constexpr std::size_t kEventsPerTurn = 16;
constexpr std::size_t kBulkEventsPerTurn = 1;
// Before hello: header, section header and section of one are 128 bytes.
constexpr std::uint64_t kLargestGreeting = 256;
// New connections before those that are there get their turn.
constexpr std::size_t kAcceptsPerTurn = 64;
// Of a batch that the I/O thread computes itself: what four streams of eight experts a row have.
constexpr std::uint32_t kMostPairsHere = 32;
// Until the next try after the process had no descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

TimePoint now() { return std::chrono::steady_clock::now(); }

CpuExecutors make_executors(const DataServer::Parts& parts) {
  return {parts.make_executor(parts.parallel, parts.ops), parts.make_executor(parts.parallel, parts.ops)};
}

}  // namespace

Result<std::unique_ptr<DataServer>> DataServer::start(const Parts& parts, const std::string& address,
                                                      const transport::Options& transport_options,
                                                      const DataServerOptions& options) {
  transport::Options strangers = transport_options;
  strangers.largest_frame = kLargestGreeting;
  TERRACE_ASSIGN_OR_RETURN(auto listener, parts.transport.listen(address, strangers));
  CardExecutors card;
  if (parts.card != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(card.outer, parts.card->make_executor());
    TERRACE_ASSIGN_OR_RETURN(card.inner, parts.card->make_executor());
  }
  const int event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_fd < 0) return Error(ErrorCode::kIo, fmt::format("eventfd: {}", std::generic_category().message(errno)));
  return std::unique_ptr<DataServer>(new DataServer(parts, std::move(card), std::move(listener), event_fd, options));
}

DataServer::DataServer(const Parts& parts, CardExecutors card, std::unique_ptr<transport::Listener> listener,
                       int event_fd, const DataServerOptions& options)
    : parts_(parts),
      options_(options),
      listener_(std::move(listener)),
      event_fd_(event_fd),
      port_(listener_->port()),
      computes_here_(parts.card == nullptr &&
                     (parts.computes_here || (parts.waiting == Waiting::kBlock && parts.parallel.n_workers() == 1))),
      wakefulness_(parts.waiting),
      compute_(std::make_unique<ComputeThread>(parts.parallel, frames_, make_executors(parts), std::move(card), queue_,
                                               *this)),
      io_thread_([this] {
        // Each thread names itself: the name of another is a file, which a node that gave its rights up does not open.
        pthread_setname_np(pthread_self(), "terrace-io");
        loop();
      }) {}

DataServer::~DataServer() {
  stop_requested_.store(true, std::memory_order_release);
  wake();
  io_thread_.join();
  compute_.reset();
  ::close(event_fd_);
}

void DataServer::wake() {
  const std::uint64_t one = 1;
  // Full is as good as written: the reader wakes either way.
  [[maybe_unused]] const ssize_t written = ::write(event_fd_, &one, sizeof one);
}

void DataServer::post(Completion completion) {
  {
    const std::lock_guard lock(handed_back_mutex_);
    completions_.push_back(std::move(completion));
  }
  wake();
}

void DataServer::loop() {
  bool more = false;
  while (true) {
    const Ready ready = wait(more);
    if (stop_requested_.load(std::memory_order_acquire) && !stopping_) begin_stop();
    if (ready.event) take_handed_back();
    more = ready.listener && accept_some();
    more |= serve_some();
    for (const auto& peer : peers_) {
      follow_session(*peer);
      check_deadline(*peer);
      peer->flush_credit();
      more |= peer->aborted();
    }
    if (computes_here_) more |= compute_here();
    std::erase_if(peers_, [](const auto& peer) { return peer->finished(); });
    if (stopping_ && peers_.empty()) return;
  }
}

void DataServer::begin_stop() {
  stopping_ = true;
  listener_.reset();
  const Error why(ErrorCode::kPeerGone, "this node is shutting down");
  for (const auto& peer : peers_) {
    cancel_works(*peer);
    peer->close(&why, now() + options_.stop_grace);
  }
}

// Blocks in one call, and costs no other call for whoever has nothing to say. A negative descriptor is not waited for.
DataServer::Ready DataServer::wait(bool more_to_do) {
  poll_fds_.clear();
  poll_fds_.push_back({event_fd_, POLLIN, 0});
  poll_fds_.push_back({listener_ && accept_after_ <= now() ? listener_->wait_fd() : -1, POLLIN, 0});
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
bool DataServer::wait_for_any(bool more_to_do) {
  const auto ask = [this](int timeout_ms) { return ::poll(poll_fds_.data(), poll_fds_.size(), timeout_ms) > 0; };
  if (more_to_do) return ask(0);
  while (wakefulness_.awake(now()))
    if (ask(0)) return true;
  return ask(next_timeout_ms());
}

int DataServer::next_timeout_ms() const {
  TimePoint next = accept_after_ > now() ? accept_after_ : TimePoint::max();
  for (const auto& peer : peers_) next = std::min(next, peer->deadline());
  if (next == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// True: there may be more.
bool DataServer::accept_some() {
  if (!listener_ || accept_after_ > now()) return false;
  for (std::size_t i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = listener_->accept();
    if (!accepted.ok() && accepted.error().code() == ErrorCode::kBusy) {
      parts_.log.warn("data port: {}; trying again every {} ms", accepted.error().text(), kAcceptPause.count());
      accept_after_ = now() + kAcceptPause;
      return false;
    }
    if (!accepted.ok()) {
      parts_.log.error("data port: {}; no further connections are accepted", accepted.error().text());
      listener_.reset();
      return false;
    }
    if (!*accepted) return false;
    make_room_for_stranger();
    peers_.push_back(
        std::make_unique<Peer>(next_peer_++, std::move(*accepted), frames_, now() + options_.hello_timeout));
  }
  return true;
}

// Connections without a session cost descriptors, whether they are silent or were refused and do not go. The one that
// has been there longest goes at once, without time to read its last words.
void DataServer::make_room_for_stranger() {
  std::size_t strangers = 0;
  Peer* oldest = nullptr;
  for (const auto& peer : peers_) {
    if (peer->session() || peer->state() == Peer::State::kClosed || peer->aborted()) continue;
    if (strangers++ == 0) oldest = peer.get();
  }
  if (strangers < options_.max_strangers) return;
  const Error why(ErrorCode::kBusy, fmt::format("{} connections have not said hello; this is the oldest", strangers));
  end_peer(*oldest, &why);
  oldest->abort();
}

Peer* DataServer::find(std::uint64_t id) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) { return peer->id() == id; });
  return found == peers_.end() ? nullptr : found->get();
}

// Whoever has something to say; of those that bring much at once one, in turn: between two of their frames decode
// batches are looked for. True: there may be more.
bool DataServer::serve_some() {
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

bool DataServer::is_first(const Peer& peer) {
  return peer.state() != Peer::State::kOpen || peer.lane() == wire::Lane::kLatency;
}

// Besides what the wait found: what was sent just now, or closed here, tells of itself.
bool DataServer::has_something(Peer& peer) {
  if (peer.state() == Peer::State::kClosed) return false;
  return peer.ready() || peer.has_more() || peer.aborted() || (peer.connection().wait_events() & POLLOUT) != 0;
}

// True: there may be more events.
bool DataServer::serve(Peer& peer) {
  if (!has_something(peer)) return false;
  std::array<transport::Event, kEventsPerTurn> events;
  const std::size_t most = is_first(peer) ? kEventsPerTurn : kBulkEventsPerTurn;
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
  if (peer.state() == Peer::State::kOpen && peer.lane() == wire::Lane::kBulk) peer.follow_pace(decode_, now());
  peer.set_has_more(n_events == most);
  return peer.has_more();
}

// One batch, then everybody has a turn. True: there may be more to do.
bool DataServer::compute_here() {
  bool more = false;
  if (Work* const work = queue_.claim(kMostPairsHere)) {
    Peer& peer = *find(work->peer);
    wakefulness_.asked(work->arrived);
    compute_->run_claimed(*work, here_);
    wakefulness_.answered(now());
    queue_.unclaim();
    more = serve(peer);  // takes what was sent
    peer.flush_credit();
    more |= peer.aborted();
  }
  queue_.wake();  // for what is not for this thread, or came meanwhile
  return more;
}

void DataServer::check_deadline(Peer& peer) {
  if (peer.state() == Peer::State::kOpen) {
    if (const Status in_time = peer.check_unfinished(options_.frame_time); !in_time.ok()) fail(peer, in_time.error());
  } else if (peer.state() == Peer::State::kMute && peer.deadline() <= now()) {
    const Error why(ErrorCode::kDeadline, fmt::format("no hello came within {} ms", options_.hello_timeout.count()));
    end_peer(peer, &why);
  } else if (peer.state() == Peer::State::kClosing && peer.deadline() <= now()) {
    peer.abort();
  }
}

void DataServer::follow_session(Peer& peer) {
  if (peer.state() != Peer::State::kOpen || !peer.session()->ended()) return;
  end_peer(peer, peer.session()->closed_by_wish() ? nullptr : &peer.session()->end_reason());
}

void DataServer::log_end(const Peer& peer, const Error& why) {
  if (peer.session()) return parts_.log.info("{}: closed: {}", peer.name(), why.text());
  if (const auto left_out = strangers_.happened())
    parts_.log.info("{}: closed: {}{}", peer.name(), why.text(), and_left_out(*left_out));
}

void DataServer::end_peer(Peer& peer, const Error* why) {
  if (why != nullptr) log_end(peer, *why);
  cancel_works(peer);
  peer.close(why, now() + options_.linger);
}

// What is wrong with a connection is wrong with its session.
void DataServer::fail(Peer& peer, const Error& error) {
  if (peer.session()) {
    peer.session()->end(error);
    follow_session(peer);
  } else {
    end_peer(peer, &error);
  }
}

void DataServer::on_closed(Peer& peer) {
  cancel_works(peer);
  peer.closed();
  const Error& why = peer.cut_off_reason() ? *peer.cut_off_reason() : peer.connection().close_reason();
  if (why.code() == ErrorCode::kPeerGone) return end_if_abandoned(peer, false);
  // The stream holds no frames, or nobody reads it: nothing can be answered on it, and the session is at its end as
  // with any bad frame.
  log_end(peer, why);
  if (const SessionRef& session = peer.session(); session && !stopping_) session->end(why);
}

// Without a connection a session cannot be used, and a coordinator that comes back opens a new one (docs/wire.md 5). So
// what a killed coordinator held is free when its last socket closes, not when the lease is over.
void DataServer::end_if_abandoned(const Peer& peer, bool goodbye) {
  const SessionRef& session = peer.session();
  if (!session || session->ended() || stopping_) return;
  for (const auto& other : peers_)
    if (other->state() == Peer::State::kOpen && other->session() == session) return;
  if (goodbye)
    session->close();
  else
    session->end(Error(ErrorCode::kPeerGone, "its last data connection is gone"));
}

void DataServer::cancel_works(Peer& peer) {
  while (Work* work = queue_.remove(peer.id(), 0)) finish_work(*work);
  for (Work* work : peer.works()) work->cancelled.store(true, std::memory_order_relaxed);
}

}  // namespace terrace::node
