#include "common/transport/loopback/loopback.h"

#include <fmt/format.h>
#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "common/transport/address.h"
#include "common/transport/loopback/endpoint.h"

namespace terrace::transport {
namespace {

class LoopbackConnection final : public Connection {
 public:
  LoopbackConnection(std::shared_ptr<Endpoint> mine, std::shared_ptr<Endpoint> peer, std::size_t max_open_sends,
                     std::string peer_name)
      : mine_(std::move(mine)), peer_(std::move(peer)), sends_(max_open_sends), peer_name_(std::move(peer_name)) {}
  ~LoopbackConnection() override { close(); }

  Result<SendTicket> send(std::span<const Part> parts) override {
    if (closed()) return Error(ErrorCode::kPeerGone, reason_.text());
    auto ticket = sends_.push(parts);
    if (!ticket.ok()) return ticket.error().in(peer_name_);
    transfer();
    return ticket;
  }

  std::size_t poll(std::span<Event> out) override {
    if (state_ == State::kReported) return 0;
    std::size_t n = 0;
    mine_->clear_event();
    if (!closed()) transfer();
    n += sends_.report_sent(out);
    if (!closed()) n += receive(out.subspan(n));
    n += sends_.report_sent(out.subspan(n));
    return n + report_closed(out.subspan(n));
  }

  void set_largest_frame(std::uint64_t bytes) override { mine_->set_largest_frame(bytes); }

  void release(std::span<const std::byte> frame) override {
    if (mine_->release(frame)) peer_->wake();
  }

  int wait_fd() override { return state_ == State::kReported ? -1 : mine_->fd(); }

  // An eventfd may always be written, so POLLOUT ends a wait at once.
  short wait_events() override {
    const bool ready = state_ == State::kClosed || sends_.has_sent() || mine_->has_frame();
    return static_cast<short>(ready ? POLLIN | POLLOUT : POLLIN);
  }

  void close() override { close_because(Error(ErrorCode::kPeerGone, peer_name_ + ": closed by this side")); }
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override { return {}; }
  TransportStats stats() const override { return stats_; }
  std::string peer_name() const override { return peer_name_; }

 private:
  enum class State { kOpen, kClosed, kReported };
  bool closed() const { return state_ != State::kOpen; }

  // Moves frames into the peer as long as it has room.
  void transfer() {
    while (sends_.has_unsent()) {
      const std::uint64_t bytes = sends_.front_bytes();
      if (peer_->deliver(sends_.front(), bytes) != Endpoint::Delivery::kDelivered) return;
      sends_.consume(bytes);
      stats_.bytes_sent += bytes;
      ++stats_.frames_sent;
    }
  }

  std::size_t receive(std::span<Event> out) {
    const bool peer_left = peer_->gone();  // asked first: what it sent before it left still counts
    std::size_t n = 0;
    for (; n < out.size(); ++n) {
      const auto frame = mine_->next_frame();
      if (!frame) break;
      stats_.bytes_received += frame->size();
      ++stats_.frames_received;
      out[n] = {Event::Kind::kReceived, 0, *frame};
    }
    if (n == out.size()) return n;
    if (const auto failure = mine_->failure())
      close_because(failure->in(peer_name_));
    else if (peer_left)
      close_because(Error(ErrorCode::kPeerGone, peer_name_ + ": closed by the peer"));
    return n;
  }

  std::size_t report_closed(std::span<Event> out) {
    if (state_ != State::kClosed || !sends_.report_closed(out)) return 0;
    state_ = State::kReported;
    return 1;
  }

  void close_because(Error reason) {
    if (closed()) return;
    state_ = State::kClosed;
    reason_ = std::move(reason);
    sends_.give_up();
    mine_->leave();
    peer_->wake();
  }

  std::shared_ptr<Endpoint> mine_;
  std::shared_ptr<Endpoint> peer_;
  SendQueue sends_;
  std::string peer_name_;
  State state_ = State::kOpen;
  Error reason_{ErrorCode::kInternal, "the connection is open"};
  TransportStats stats_;
};

// Connections that wait for accept().
struct Backlog {
  Backlog(EventFd event_fd, const Options& listen_options) : event(std::move(event_fd)), options(listen_options) {}
  std::mutex mutex;
  EventFd event;
  const Options options;
  std::deque<std::unique_ptr<Connection>> waiting;
};

}  // namespace

struct LoopbackTransport::Network {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Backlog>> listening;
  std::uint16_t next_port = 49152;  // the first of those that no service is assigned to
  std::uint64_t next_client = 1;
};

namespace {

class LoopbackListener final : public Listener {
 public:
  LoopbackListener(HostPort address, std::shared_ptr<Backlog> backlog, std::function<void()> forget)
      : address_(std::move(address)), backlog_(std::move(backlog)), forget_(std::move(forget)) {}
  ~LoopbackListener() override {
    forget_();
    const std::lock_guard lock(backlog_->mutex);
    backlog_->waiting.clear();
  }

  Result<std::unique_ptr<Connection>> accept() override {
    const std::lock_guard lock(backlog_->mutex);
    backlog_->event.clear();
    if (backlog_->waiting.empty()) return std::unique_ptr<Connection>();
    auto connection = std::move(backlog_->waiting.front());
    backlog_->waiting.pop_front();
    if (!backlog_->waiting.empty()) backlog_->event.signal();
    return connection;
  }

  int wait_fd() override { return backlog_->event.fd(); }
  std::string address() const override { return to_string(address_); }
  std::uint16_t port() const override { return address_.port; }

 private:
  HostPort address_;
  std::shared_ptr<Backlog> backlog_;
  std::function<void()> forget_;
};

}  // namespace

LoopbackTransport::LoopbackTransport() : network_(std::make_shared<Network>()) {}
LoopbackTransport::~LoopbackTransport() = default;

Result<std::unique_ptr<Listener>> LoopbackTransport::listen(const std::string& address, const Options& options) {
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(HostPort at, parse_host_port(address));
  TERRACE_ASSIGN_OR_RETURN(EventFd event, EventFd::create());
  const std::lock_guard lock(network_->mutex);
  if (at.port == 0) {
    do at.port = network_->next_port++;
    while (at.port == 0 || network_->listening.contains(to_string(at)));
  }
  const std::string key = to_string(at);
  if (network_->listening.contains(key)) return Error(ErrorCode::kIo, key + ": cannot listen: address already in use");
  auto backlog = std::make_shared<Backlog>(std::move(event), options);
  network_->listening.emplace(key, backlog);
  auto forget = [network = network_, key] {
    const std::lock_guard guard(network->mutex);
    network->listening.erase(key);
  };
  return std::unique_ptr<Listener>(std::make_unique<LoopbackListener>(at, std::move(backlog), std::move(forget)));
}

Result<std::unique_ptr<Connection>> LoopbackTransport::connect(const std::string& address, const Options& options,
                                                               std::chrono::milliseconds) {
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(const HostPort to, parse_host_port(address));
  TERRACE_ASSIGN_OR_RETURN(EventFd client_event, EventFd::create());
  TERRACE_ASSIGN_OR_RETURN(EventFd server_event, EventFd::create());
  const std::lock_guard lock(network_->mutex);
  const auto found = network_->listening.find(to_string(to));
  if (found == network_->listening.end())
    return Error(ErrorCode::kPeerGone, to_string(to) + ": cannot connect: connection refused");
  Backlog& backlog = *found->second;
  auto client = std::make_shared<Endpoint>(std::move(client_event), options);
  auto server = std::make_shared<Endpoint>(std::move(server_event), backlog.options);
  const std::string client_name = fmt::format("loopback:{}", network_->next_client++);
  {
    const std::lock_guard guard(backlog.mutex);
    backlog.waiting.push_back(
        std::make_unique<LoopbackConnection>(server, client, backlog.options.max_open_sends, client_name));
    backlog.event.signal();
  }
  return std::unique_ptr<Connection>(
      std::make_unique<LoopbackConnection>(client, server, options.max_open_sends, to_string(to)));
}

}  // namespace terrace::transport
