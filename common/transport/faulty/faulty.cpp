#include "common/transport/faulty/faulty.h"

#include <utility>

#include "common/transport/faulty/faulty_connection.h"

namespace terrace::transport {
namespace {

class SteadyClock final : public FaultClock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};
const SteadyClock kSteadyClock;

class FaultyListener final : public Listener {
 public:
  FaultyListener(std::unique_ptr<Listener> inner, std::shared_ptr<FaultState> state, const FaultClock& clock,
                 std::size_t max_open_sends)
      : inner_(std::move(inner)), state_(std::move(state)), clock_(clock), max_open_sends_(max_open_sends) {}

  Result<std::unique_ptr<Connection>> accept() override {
    TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->accept());
    if (!connection) return std::unique_ptr<Connection>();
    return FaultyConnection::wrap(std::move(connection), state_, clock_, max_open_sends_);
  }
  int wait_fd() override { return inner_->wait_fd(); }
  std::string address() const override { return inner_->address(); }
  std::uint16_t port() const override { return inner_->port(); }

 private:
  std::unique_ptr<Listener> inner_;
  std::shared_ptr<FaultState> state_;
  const FaultClock& clock_;
  std::size_t max_open_sends_;
};

}  // namespace

FaultyTransport::FaultyTransport(std::shared_ptr<Transport> inner, FaultScript script, const FaultClock* clock)
    : inner_(std::move(inner)),
      state_(std::make_shared<FaultState>(std::move(script))),
      clock_(clock != nullptr ? clock : &kSteadyClock) {}

Result<std::unique_ptr<Listener>> FaultyTransport::listen(const std::string& address, const Options& options) {
  TERRACE_ASSIGN_OR_RETURN(auto listener, inner_->listen(address, options));
  return std::unique_ptr<Listener>(
      std::make_unique<FaultyListener>(std::move(listener), state_, *clock_, options.max_open_sends));
}

Result<std::unique_ptr<Connection>> FaultyTransport::connect(const std::string& address, const Options& options,
                                                             std::chrono::milliseconds timeout) {
  TERRACE_ASSIGN_OR_RETURN(auto connection, inner_->connect(address, options, timeout));
  return FaultyConnection::wrap(std::move(connection), state_, *clock_, options.max_open_sends);
}

}  // namespace terrace::transport
