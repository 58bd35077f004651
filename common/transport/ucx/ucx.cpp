#include "common/transport/ucx/ucx.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <utility>

#include "common/base/descriptor.h"
#include "common/transport/address.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/ucx/context.h"
#include "common/transport/ucx/ucx_connection.h"
#include "common/transport/ucx/worker.h"

namespace terrace::transport {
namespace {

// "192.0.2.1:9001", numeric.
Status check_allowed(const UcxOptions& options, const std::string& address) {
  TERRACE_ASSIGN_OR_RETURN(const HostPort at, parse_host_port(address));
  if (options.trusted_net ? options.trusted_net->contains(at.host) : is_loopback(at.host)) return {};
  return Error(
      ErrorCode::kRefused,
      options.trusted_net
          ? fmt::format("{}: not in {}, the network that UCX may be used in (--trusted-net)", address,
                        options.trusted_net->text())
          : fmt::format("{}: not loopback, and UCX is for trusted networks alone: give --trusted-net CIDR", address));
}

class UcxListener final : public Listener {
 public:
  // kIo: no descriptor is left.
  static Result<std::unique_ptr<Listener>> create(std::shared_ptr<Worker> worker, std::unique_ptr<Listener> setups,
                                                  const UcxOptions& ucx, const Options& options) {
    Descriptor both(::epoll_create1(EPOLL_CLOEXEC));
    for (const int fd : {setups->wait_fd(), worker->event_fd()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      if (both.get() < 0 || ::epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return Error(ErrorCode::kIo, fmt::format("{}: no descriptor to wait for", setups->address()));
    }
    return std::unique_ptr<Listener>(
        new UcxListener(std::move(worker), std::move(setups), std::move(both), ucx, options));
  }

  Result<std::unique_ptr<Connection>> accept() override {
    if (!worker_->has_channels()) worker_->progress();
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Connection> setup, setups_->accept());
    if (!setup || !check_allowed(ucx_, setup->peer_name()).ok()) return std::unique_ptr<Connection>();
    return UcxConnection::create(UcxConnection::Role::kServer, worker_, std::move(setup), options_);
  }
  // What is left of connections that have ended is the listener's to bring to its end while no other is there.
  int wait_fd() override {
    if (worker_->has_channels()) return setups_->wait_fd();
    return worker_->armed_fd() == worker_->ready_fd() ? worker_->ready_fd() : both_.get();
  }
  std::string address() const override { return setups_->address(); }
  std::uint16_t port() const override { return setups_->port(); }

 private:
  UcxListener(std::shared_ptr<Worker> worker, std::unique_ptr<Listener> setups, Descriptor both, UcxOptions ucx,
              const Options& options)
      : worker_(std::move(worker)),
        setups_(std::move(setups)),
        both_(std::move(both)),
        ucx_(std::move(ucx)),
        options_(options) {}
  std::shared_ptr<Worker> worker_;
  std::unique_ptr<Listener> setups_;
  Descriptor both_;  // an epoll of the worker's descriptor and the setups'
  const UcxOptions ucx_;
  const Options options_;
};

}  // namespace

struct UcxTransport::Parts {
  std::shared_ptr<Context> context;
  UcxOptions options;
  TcpTransport setups;  // connections that say where UCX is reached
};

UcxTransport::UcxTransport(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
UcxTransport::~UcxTransport() = default;

bool ucx_is_built() { return true; }

Result<std::unique_ptr<UcxTransport>> UcxTransport::create(const UcxOptions& options, const Logger& log) {
  TERRACE_RETURN_IF_ERROR(check_ucx_place(options));
  auto parts = std::make_unique<Parts>();
  TERRACE_ASSIGN_OR_RETURN(parts->context, Context::create(options, log));
  parts->options = options;
  return std::unique_ptr<UcxTransport>(new UcxTransport(std::move(parts)));
}

Result<std::unique_ptr<Listener>> UcxTransport::listen(const std::string& address, const Options& options) {
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(auto setups, parts_->setups.listen(address, UcxConnection::options_of_setup()));
  TERRACE_RETURN_IF_ERROR(check_allowed(parts_->options, setups->address()));
  TERRACE_ASSIGN_OR_RETURN(auto worker, Worker::create(parts_->context, parts_->options));
  return UcxListener::create(std::move(worker), std::move(setups), parts_->options, options);
}

Result<std::unique_ptr<Connection>> UcxTransport::connect(const std::string& address, const Options& options,
                                                          std::chrono::milliseconds timeout) {
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(auto setup, parts_->setups.connect(address, UcxConnection::options_of_setup(), timeout));
  TERRACE_RETURN_IF_ERROR(check_allowed(parts_->options, setup->peer_name()));
  TERRACE_ASSIGN_OR_RETURN(auto worker, Worker::create(parts_->context, parts_->options));
  return UcxConnection::create(UcxConnection::Role::kClient, std::move(worker), std::move(setup), options);
}

}  // namespace terrace::transport
