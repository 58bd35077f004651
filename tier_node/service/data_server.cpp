#include "tier_node/service/data_server.h"

#include <fmt/core.h>

#include <utility>

#include "common/threads/start.h"

namespace terrace::node {
namespace {

// A frame of the bulk lane takes tens of microseconds to be read and opened, so that is one, and no other such
// lane's in the same turn.
constexpr std::size_t kBulkEventsInTurn = 1;
// Before hello: header, section header and section of one are 128 bytes.
constexpr std::uint64_t kLargestGreeting = 256;
// New connections before those that are there get their turn.
constexpr std::size_t kAcceptsPerTurn = 64;
// Of a batch that the I/O thread computes itself: what four streams of eight experts a row have.
constexpr std::uint32_t kMostPairsHere = 32;
// Until the next try after the process had no descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

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
  std::unique_ptr<WeightsThread> weights;
  if (parts.weights) {
    TERRACE_ASSIGN_OR_RETURN(weights, WeightsThread::start(parts.loader, parts.log, options, *parts.weights));
  }
  TERRACE_ASSIGN_OR_RETURN(const int event_fd, make_event_fd());
  std::unique_ptr<DataServer> server(new DataServer(parts, std::move(listener), event_fd, std::move(weights), options));
  TERRACE_RETURN_IF_ERROR(server->start_threads(std::move(card)));
  return server;
}

DataServer::DataServer(const Parts& parts, std::unique_ptr<transport::Listener> listener, int event_fd,
                       std::unique_ptr<WeightsThread> weights, const DataServerOptions& options)
    : PeerLoop(parts.loader, parts.log, options, event_fd, kBulkEventsInTurn),
      parts_(parts),
      listener_(std::move(listener)),
      port_(listener_->port()),
      computes_here_(parts.card == nullptr &&
                     (parts.computes_here || (parts.waiting == Waiting::kBlock && parts.parallel.n_workers() == 1))),
      wakefulness_(parts.waiting),
      weights_(std::move(weights)) {}

Status DataServer::start_threads(CardExecutors card) {
  TERRACE_ASSIGN_OR_RETURN(
      compute_, ComputeThread::start(parts_.parallel, frames_, make_executors(parts_), std::move(card), queue_, *this));
  TERRACE_ASSIGN_OR_RETURN(io_thread_, start_thread("terrace-io", [this] { loop(); }));
  return {};
}

DataServer::~DataServer() {
  request_stop();
  if (io_thread_.joinable()) io_thread_.join();
  compute_.reset();
}

void DataServer::wake() {
  PeerLoop::wake();
  if (weights_) weights_->wake();
}

void DataServer::post(Completion completion) {
  {
    const std::lock_guard lock(completions_mutex_);
    completions_.push_back(std::move(completion));
  }
  PeerLoop::wake();
}

// Nothing is handed to the thread of the weights lanes from here on.
void DataServer::on_stop() {
  listener_.reset();
  if (weights_) weights_->request_stop();
}

int DataServer::listening_fd() { return listener_ && accept_after_ <= now() ? listener_->wait_fd() : -1; }

TimePoint DataServer::next_time() const { return accept_after_ > now() ? accept_after_ : TimePoint::max(); }

// True: there may be more.
bool DataServer::on_listening() {
  if (!listener_ || accept_after_ > now()) return false;
  for (std::size_t i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = listener_->accept();
    if (!accepted.ok() && accepted.error().code() == ErrorCode::kBusy) {
      log().warn("data port: {}; trying again every {} ms", accepted.error().text(), kAcceptPause.count());
      accept_after_ = now() + kAcceptPause;
      return false;
    }
    if (!accepted.ok()) {
      log().error("data port: {}; no further connections are accepted", accepted.error().text());
      listener_.reset();
      return false;
    }
    if (!*accepted) return false;
    make_room_for_stranger();
    peers().push_back(
        std::make_unique<Peer>(next_peer_++, std::move(*accepted), frames_, now() + options().hello_timeout));
  }
  return true;
}

// Connections without a session cost descriptors, whether they are silent or were refused and do not go. The one that
// has been there longest goes at once, without time to read its last words.
void DataServer::make_room_for_stranger() {
  std::size_t strangers = 0;
  Peer* oldest = nullptr;
  for (const auto& peer : peers()) {
    if (peer->session() || peer->state() == Peer::State::kClosed || peer->aborted()) continue;
    if (strangers++ == 0) oldest = peer.get();
  }
  if (strangers < options().max_strangers) return;
  const Error why(ErrorCode::kBusy, fmt::format("{} connections have not said hello; this is the oldest", strangers));
  end_peer(*oldest, &why);
  oldest->abort();
}

void DataServer::after_poll(Peer& peer) {
  if (peer.state() == Peer::State::kOpen && peer.lane() == wire::Lane::kBulk) peer.follow_pace(decode_, now());
}

bool DataServer::end_turn() {
  if (weights_) hand_over_weights();
  return computes_here_ && compute_here();
}

// Nothing refers to them here: a connection without a hello has one event in a turn, which was that hello.
void DataServer::hand_over_weights() {
  const auto is_weights = [](const std::unique_ptr<Peer>& peer) {
    return peer->state() == Peer::State::kOpen && peer->lane() == wire::Lane::kWeights;
  };
  for (std::unique_ptr<Peer>& peer : peers())
    if (is_weights(peer)) weights_->adopt(std::move(peer));
  std::erase(peers(), nullptr);
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

void DataServer::cancel_works(Peer& peer) {
  while (Work* work = queue_.remove(peer.id(), 0)) finish_work(*work);
  for (Work* work : peer.works()) work->cancelled.store(true, std::memory_order_relaxed);
}

}  // namespace terrace::node
