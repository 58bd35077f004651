#include "tier_node/service/control_listener.h"

#include <fmt/core.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/descriptor.h"
#include "common/base/seldom.h"
#include "common/threads/start.h"
#include "common/transport/address.h"
#include "common/transport/event_fd.h"

namespace terrace::node {
namespace {

constexpr int kBacklog = 128;
constexpr int kPauseMs = 100;  // without a descriptor, until the next try

Error failed(const std::string& address, const char* what) {
  return Error(ErrorCode::kIo, fmt::format("{} cannot be listened on: {}: {}", address, what, std::strerror(errno)));
}

Result<Descriptor> listen_on(const std::string& address) {
  TERRACE_ASSIGN_OR_RETURN(const transport::HostPort at, transport::parse_host_port(address));
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found); code != 0)
    return Error(ErrorCode::kIo, fmt::format("{} cannot be listened on: {}", address, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failed(address, "socket");
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return failed(address, "SO_REUSEADDR");
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return failed(address, "is the port in use? bind");
  if (::listen(socket.get(), kBacklog) != 0) return failed(address, "is the port in use? listen");
  return socket;
}

Result<std::uint16_t> port_of(const Descriptor& socket, const std::string& address) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return failed(address, "getsockname");
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

// Sockets that were handed over, known again by their inodes: whoever has them closes them without telling.
class OpenSockets {
 public:
  void add(int fd) { sockets_.push_back({fd, inode(fd), Clock::now()}); }
  std::size_t at_most() const { return sockets_.size(); }
  std::size_t count() {
    std::erase_if(sockets_, [](const Known& known) { return inode(known.fd) != known.inode; });
    return sockets_.size();
  }
  // Ends the one that has said least; gives the bytes it said. New ones are taken to have said more than they did, for
  // want of time. Its owner sees the end and closes it. Between the look at the inode and the end it may have closed it
  // already, and another socket have its number: as long as a system call takes, and only while too many are open.
  std::uint64_t end_one() {
    const Clock::time_point now = Clock::now();
    const auto weight = [&](const Known& known) {
      if (now - known.since < kTimeToBegin) return UINT64_MAX;
      return bytes_received(known.fd) + (now - known.since < kTimeToSpeak ? kTrustedBytes : 0);
    };
    const auto least = std::ranges::min_element(sockets_, {}, weight);
    const std::uint64_t said = bytes_received(least->fd);
    (void)::shutdown(least->fd, SHUT_RDWR);
    sockets_.erase(least);
    return said;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kTimeToBegin{200};
  static constexpr std::chrono::seconds kTimeToSpeak{1};  // greeting and call come with the first packets
  static constexpr std::uint64_t kTrustedBytes = 512;     // those have about as many
  struct Known {
    int fd;
    ino_t inode;
    Clock::time_point since;
  };
  static ino_t inode(int fd) {
    struct stat facts = {};
    return ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? facts.st_ino : 0;
  }
  static std::uint64_t bytes_received(int fd) {
    tcp_info facts = {};
    socklen_t size = sizeof facts;
    return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &facts, &size) == 0 ? facts.tcpi_bytes_received : 0;
  }
  std::vector<Known> sockets_;
};

class Listener final : public ControlListener {
 public:
  Listener(std::uint32_t max_connections, Handler on_connection, const Logger& log, Descriptor socket,
           transport::EventFd stop, std::uint16_t port, std::string address)
      : max_connections_(max_connections),
        on_connection_(std::move(on_connection)),
        log_(log),
        socket_(std::move(socket)),
        stop_(std::move(stop)),
        port_(port),
        address_(std::move(address)) {}
  ~Listener() override {
    stop_.signal();
    if (thread_.joinable()) thread_.join();
  }

  Status run() {
    auto started = start_thread("terrace-accept", [this] { accept_until_stopped(); });
    if (!started.ok()) return started.error().in(fmt::format("{} cannot be listened on", address_));
    thread_ = std::move(*started);
    return {};
  }
  std::uint16_t port() const override { return port_; }

 private:
  // True: stop() came before the time was over.
  bool wait(bool for_connections, int timeout_ms) {
    std::array<pollfd, 2> fds = {{{stop_.fd(), POLLIN, 0}, {socket_.get(), POLLIN, 0}}};
    (void)::poll(fds.data(), for_connections ? 2 : 1, timeout_ms);
    return fds[0].revents != 0;
  }

  void accept_until_stopped() {
    while (!wait(true, -1)) {
      const int fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        take(Descriptor(fd));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (no_descriptor_.happened())
          log_.warn("{}: connections wait: {}; going on when others end", address_, std::strerror(errno));
        if (wait(false, kPauseMs)) return;
      }  // else a connection that ended before it was taken
    }
  }

  void take(Descriptor socket) {
    // Looked through only when it may be too many.
    if (open_.at_most() >= max_connections_ && open_.count() >= max_connections_) {
      const std::uint64_t said = open_.end_one();
      if (const auto left_out = full_.happened())
        log_.warn("{}: {} connections are open: the one that said least, {} bytes, is closed for a new one{}", address_,
                  max_connections_, said, and_left_out(*left_out));
    }
    const int on = 1;
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on none that lives
    open_.add(socket.get());
    on_connection_(socket.release());
  }

  const std::uint32_t max_connections_;
  const Handler on_connection_;
  const Logger log_;
  const Descriptor socket_;
  transport::EventFd stop_;
  const std::uint16_t port_;
  const std::string address_;
  OpenSockets open_;
  Seldom no_descriptor_;
  Seldom full_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ControlListener>> ControlListener::start(const std::string& address,
                                                                std::uint32_t max_connections, Handler on_connection,
                                                                const Logger& log) {
  TERRACE_ASSIGN_OR_RETURN(Descriptor socket, listen_on(address));
  TERRACE_ASSIGN_OR_RETURN(const std::uint16_t port, port_of(socket, address));
  TERRACE_ASSIGN_OR_RETURN(transport::EventFd stop, transport::EventFd::create());
  auto listener = std::make_unique<Listener>(max_connections, std::move(on_connection), log, std::move(socket),
                                             std::move(stop), port, address);
  TERRACE_RETURN_IF_ERROR(listener->run());
  return std::unique_ptr<ControlListener>(std::move(listener));
}

}  // namespace terrace::node
