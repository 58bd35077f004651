#include "common/transport/recording/replay.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

#include "common/transport/address.h"
#include "common/transport/event_fd.h"
#include "common/transport/recording/replay_connection.h"
#include "common/transport/recording/replay_log.h"

namespace terrace::transport {

// How far the connections have been handed out.
class ReplayBacklog {
 public:
  // The next recorded connection for accept(); none: all are taken, or play() was not called.
  std::optional<std::uint32_t> next(std::uint32_t n_connections) {
    const std::lock_guard lock(mutex_);
    if (!playing_ || next_ == n_connections) return std::nullopt;
    return next_++;
  }
  std::optional<std::uint32_t> connect(std::uint32_t n_connections) {
    const std::lock_guard lock(mutex_);
    if (next_ == n_connections) return std::nullopt;
    return next_++;
  }
  void play() {
    const std::lock_guard lock(mutex_);
    playing_ = true;
    if (event_) event_->signal();
  }
  Status listen() {
    TERRACE_ASSIGN_OR_RETURN(EventFd event, EventFd::create());
    const std::lock_guard lock(mutex_);
    if (event_) return Error(ErrorCode::kInvalidArgument, "a replay is listened for once");
    event_.emplace(std::move(event));
    if (playing_) event_->signal();
    return {};
  }
  int fd() {
    const std::lock_guard lock(mutex_);
    return event_->fd();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    event_->clear();
  }

 private:
  std::mutex mutex_;
  bool playing_ = false;
  std::uint32_t next_ = 0;
  std::optional<EventFd> event_;
};

namespace {

class ReplayListener final : public Listener {
 public:
  ReplayListener(std::shared_ptr<ReplayLog> log, std::shared_ptr<ReplayBacklog> backlog, HostPort address,
                 std::size_t max_open_sends)
      : log_(std::move(log)),
        backlog_(std::move(backlog)),
        address_(std::move(address)),
        max_open_sends_(max_open_sends) {}

  Result<std::unique_ptr<Connection>> accept() override {
    const auto next = backlog_->next(log_->n_connections());
    if (next) return ReplayConnection::create(log_, *next, PlayedEnd::kRecorder, max_open_sends_);
    backlog_->clear();
    return std::unique_ptr<Connection>();
  }
  int wait_fd() override { return backlog_->fd(); }
  std::string address() const override { return to_string(address_); }
  std::uint16_t port() const override { return address_.port; }

 private:
  std::shared_ptr<ReplayLog> log_;
  std::shared_ptr<ReplayBacklog> backlog_;
  HostPort address_;
  std::size_t max_open_sends_;
};

}  // namespace

Result<std::unique_ptr<Replay>> Replay::create(Recording recording, const ReplayIdentity& identity) {
  TERRACE_ASSIGN_OR_RETURN(auto log, ReplayLog::create(std::move(recording), identity));
  return std::unique_ptr<Replay>(new Replay(std::move(log)));
}

Replay::Replay(std::shared_ptr<ReplayLog> log) : log_(std::move(log)), backlog_(std::make_shared<ReplayBacklog>()) {}
Replay::~Replay() = default;

Result<std::unique_ptr<Listener>> Replay::listen(const std::string& address, const Options& options) {
  TERRACE_ASSIGN_OR_RETURN(HostPort at, parse_host_port(address));
  TERRACE_RETURN_IF_ERROR(backlog_->listen());
  if (at.port == 0) at.port = 1;  // nobody else can connect here: any number does
  return std::unique_ptr<Listener>(
      std::make_unique<ReplayListener>(log_, backlog_, std::move(at), options.max_open_sends));
}

Result<std::unique_ptr<Connection>> Replay::connect(const std::string& address, const Options& options,
                                                    std::chrono::milliseconds) {
  const auto next = backlog_->connect(log_->n_connections());
  if (!next)
    return Error(ErrorCode::kPeerGone,
                 fmt::format("{}: cannot connect: the recording has {} connections", address, log_->n_connections()));
  return ReplayConnection::create(log_, *next, PlayedEnd::kPeer, options.max_open_sends);
}

void Replay::play() { backlog_->play(); }
bool Replay::finished() const { return log_->finished(); }
std::vector<std::string> Replay::differences() const { return log_->differences(); }
std::size_t Replay::compared() const { return log_->compared(); }

}  // namespace terrace::transport
