#include "common/transport/tcp/tcp.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "common/transport/address.h"
#include "common/transport/send_queue.h"
#include "common/transport/tcp/frame_reader.h"
#include "common/transport/tcp/socket_options.h"

namespace terrace::transport {

// Sockets of Asio belong to a context. Ours are only ever asked without blocking, so it never runs.
struct TcpTransport::Context {
  asio::io_context io;
};

namespace {

using asio::ip::tcp;

// Most pieces that one write gathers; a batch has about a dozen.
constexpr std::size_t kGather = 16;
// Bytes that one poll() moves each way before it returns, so that a fast peer does not keep the owner from its other
// connections.
constexpr std::size_t kPollBytes = std::size_t{4} << 20;

std::string text(const tcp::endpoint& endpoint) {
  return to_string(HostPort{endpoint.address().to_string(), endpoint.port()});
}

bool not_now(const asio::error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

Error failed(ErrorCode code, const std::string& address, const char* what, const asio::error_code& error) {
  return Error(code, fmt::format("{}: {}: {}", address, what, error.message()));
}

// Not fatal: a system that refuses a size still transports bytes.
template <class Socket>
void set_buffers(Socket& socket, const Options& options) {
  if (options.socket_buffer == 0) return;
  asio::error_code ignored;
  const int bytes = static_cast<int>(std::min<std::size_t>(options.socket_buffer, 1 << 30));
  socket.set_option(asio::socket_base::send_buffer_size(bytes), ignored);
  socket.set_option(asio::socket_base::receive_buffer_size(bytes), ignored);
}

// kIo: it is asked for and not allowed.
template <class Socket>
Status set_busy_poll(Socket& socket, const Options& options, const std::string& address) {
  if (options.busy_poll.count() == 0) return {};
  const int error = transport::set_busy_poll(socket.native_handle(), options.busy_poll);
  if (error == 0) return {};
  return Error(ErrorCode::kIo, fmt::format("{}: busy polling for {} us is refused: {}; raise sysctl net.core.busy_read",
                                           address, options.busy_poll.count(), std::generic_category().message(error)));
}

class TcpConnection final : public Connection {
 public:
  // `socket` is connected and of `context`, which lives as long as the connection does.
  TcpConnection(std::shared_ptr<void> context, tcp::socket socket, std::string peer_name, const Options& options)
      : context_(std::move(context)),
        socket_(std::move(socket)),
        peer_name_(std::move(peer_name)),
        sends_(options.max_open_sends),
        reader_(options) {}

  Result<SendTicket> send(std::span<const Part> parts) override {
    if (state_ != State::kOpen) return Error(ErrorCode::kPeerGone, reason_.text());
    auto ticket = sends_.push(parts);
    if (!ticket.ok()) return ticket.error().in(peer_name_);
    write();
    return ticket;
  }

  std::size_t poll(std::span<Event> out) override {
    if (state_ == State::kReported) return 0;
    if (state_ == State::kOpen) write();
    std::size_t n = sends_.report_sent(out);
    // Right after a send nothing has come yet, and asking costs a system call. What has come all the same makes
    // wait_fd() readable, and every second call at least does read.
    const bool only_sent = n > 0 && drained_ && !frames_ready_ && state_ == State::kOpen;
    drained_ = false;
    if (state_ < State::kClosed && !only_sent) n += receive(out.subspan(n));
    n += sends_.report_sent(out.subspan(n));
    return n + report_closed(out.subspan(n));
  }

  void set_largest_frame(std::uint64_t bytes) override { reader_.set_largest_frame(bytes); }
  void release(std::span<const std::byte> frame) override {
    frames_ready_ = frames_ready_ || reader_.window_full();  // what waited for room may lie in the read-ahead
    reader_.release(frame);
  }
  int wait_fd() override { return socket_.is_open() ? socket_.native_handle() : -1; }

  short wait_events() override {
    const bool ready = state_ == State::kClosed || sends_.has_sent() || frames_ready_;
    const int in = reader_.window_full() ? 0 : POLLIN;
    return static_cast<short>(ready || sends_.has_unsent() ? in | POLLOUT : in);
  }

  void close() override { close_because(Error(ErrorCode::kPeerGone, peer_name_ + ": closed by this side")); }
  const Error& close_reason() const override { return reason_; }
  UnfinishedFrame unfinished() const override {
    if (state_ >= State::kClosed || frames_ready_ || reader_.window_full()) return {};
    return {stats_.frames_received, reader_.bytes_of_unfinished(), reader_.length_of_unfinished()};
  }
  TransportStats stats() const override {
    TransportStats stats = stats_;
    stats.bytes_copied = reader_.bytes_copied();
    return stats;
  }
  // A socket that has ended refuses, and paces nothing any more.
  void set_pace(std::uint64_t bytes_per_second) override {
    write_bytes_ = bytes_per_second > 0 ? unsent_when_paced(bytes_per_second) : kPollBytes;
    if (socket_.is_open()) (void)transport::set_pace(socket_.native_handle(), bytes_per_second);
  }
  std::optional<SentProgress> sent_progress() const override {
    if (!socket_.is_open()) return std::nullopt;
    return transport::sent_progress(socket_.native_handle());
  }
  std::string peer_name() const override { return peer_name_; }

 private:
  enum class State {
    kOpen,
    kDraining,  // nothing can be written any more; what the peer sent before is still read, it may say why
    kClosed,
    kReported,
  };

  void write() {
    std::array<Part, kGather> parts;
    for (std::size_t moved = 0; sends_.has_unsent() && moved < write_bytes_;) {
      std::array<asio::const_buffer, kGather> buffers;
      const std::size_t n = sends_.gather(parts);
      std::size_t room = write_bytes_ - moved;
      for (std::size_t i = 0; i < n; ++i) {
        buffers[i] = asio::buffer(parts[i].data(), std::min(parts[i].size(), room));
        room -= buffers[i].size();
      }
      asio::error_code error;
      const std::size_t bytes = socket_.write_some(buffers, error);
      if (error == asio::error::interrupted) continue;
      if (not_now(error)) return;
      if (error) {
        reason_ = failed(ErrorCode::kPeerGone, peer_name_, "cannot send", error);
        state_ = State::kDraining;
        sends_.give_up();
        return;
      }
      moved += bytes;
      stats_.bytes_sent += bytes;
      stats_.frames_sent += sends_.consume(bytes);
    }
  }

  std::size_t receive(std::span<Event> out) {
    std::size_t n = 0;
    for (std::size_t moved = 0;;) {
      n += take_frames(out.subspan(n));
      if (state_ >= State::kClosed || frames_ready_) return n;
      if (reader_.window_full()) {
        check_paused();
        return n;
      }
      if (moved >= kPollBytes || drained_) return n;
      moved += read();
    }
  }

  // Frames that have been read, into `out`. frames_ready_: there may be more than fitted.
  std::size_t take_frames(std::span<Event> out) {
    frames_ready_ = true;
    for (std::size_t n = 0; n < out.size(); ++n) {
      const auto frame = reader_.next_frame();
      if (!frame.ok()) close_because(frame.error().in(peer_name_));
      if (!frame.ok() || !frame->has_value()) {
        frames_ready_ = false;
        return n;
      }
      ++stats_.frames_received;
      out[n] = {Event::Kind::kReceived, 0, **frame};
    }
    return out.size();
  }

  // One read; its bytes. It drained the socket when it got less than it asked for: trying again would only say so. What
  // comes later, the end of the link too, makes wait_fd() readable.
  std::size_t read() {
    const auto space = reader_.space();
    const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(space[0].data(), space[0].size()),
                                                      asio::buffer(space[1].data(), space[1].size())};
    asio::error_code error;
    std::size_t bytes = 0;
    do bytes = socket_.read_some(buffers, error);
    while (error == asio::error::interrupted);
    drained_ = bytes < space[0].size() + space[1].size();
    if (!error) {
      stats_.bytes_received += bytes;
      reader_.filled(bytes);
      return bytes;
    }
    if (state_ == State::kDraining)
      close_because(reason_);
    else if (error == asio::error::eof)
      close_because(end_of_stream());
    else if (!not_now(error))
      close_because(failed(ErrorCode::kPeerGone, peer_name_, "lost", error));
    return 0;
  }

  // While the window is full nothing is read, so that the loss of the link has to be asked for.
  void check_paused() {
    // The last words of a broken link do not fit: waiting for room, its owner would be woken again and again.
    if (state_ == State::kDraining) close_because(reason_);
    if (state_ != State::kOpen || sends_.has_unsent()) return;  // a write will tell
    int code = 0;
    socklen_t length = sizeof(code);
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code == 0) return;
    close_because(failed(ErrorCode::kPeerGone, peer_name_, "lost", asio::error_code(code, asio::system_category())));
  }

  Error end_of_stream() const {
    const std::uint64_t unfinished = reader_.bytes_of_unfinished();
    if (unfinished == 0) return Error(ErrorCode::kPeerGone, peer_name_ + ": closed by the peer");
    return Error(ErrorCode::kPeerGone,
                 fmt::format("{}: closed by the peer after {} bytes of a frame", peer_name_, unfinished));
  }

  std::size_t report_closed(std::span<Event> out) {
    if (state_ != State::kClosed || !sends_.report_closed(out)) return 0;
    state_ = State::kReported;
    asio::error_code ignored;
    socket_.close(ignored);
    return 1;
  }

  // The link ends at once; the descriptor stays until kClosed is given, so that whoever waits for it wakes up.
  void close_because(Error reason) {
    if (state_ >= State::kClosed) return;
    state_ = State::kClosed;
    reason_ = std::move(reason);
    sends_.give_up();
    asio::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
  }

  std::shared_ptr<void> context_;  // before socket_, which needs it to end
  mutable tcp::socket socket_;     // tells its descriptor only where it may be changed
  std::string peer_name_;
  SendQueue sends_;
  FrameReader reader_;
  State state_ = State::kOpen;
  bool frames_ready_ = false;
  bool drained_ = false;                  // the last poll() left nothing in the socket
  std::size_t write_bytes_ = kPollBytes;  // most that one poll() or send() writes
  Error reason_{ErrorCode::kInternal, "the connection is open"};
  TransportStats stats_;
};

Result<std::unique_ptr<Connection>> adopt(std::shared_ptr<void> context, tcp::socket socket,
                                          const std::string& peer_name, const Options& options) {
  asio::error_code error;
  socket.non_blocking(true, error);
  if (!error) socket.set_option(tcp::no_delay(true), error);
  if (error) return failed(ErrorCode::kPeerGone, peer_name, "cannot set up the connection", error);
  set_buffers(socket, options);
  return std::unique_ptr<Connection>(
      std::make_unique<TcpConnection>(std::move(context), std::move(socket), peer_name, options));
}

// The address's endpoints; a numeric host asks no resolver.
Result<std::vector<tcp::endpoint>> endpoints_of(const HostPort& address) {
  asio::error_code error;
  if (const auto numeric = asio::ip::make_address(address.host, error); !error)
    return std::vector{tcp::endpoint(numeric, address.port)};
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::numeric_service, error);
  if (error == asio::error::host_not_found || error == asio::error::host_not_found_try_again)
    return failed(error == asio::error::host_not_found ? ErrorCode::kInvalidArgument : ErrorCode::kPeerGone,
                  to_string(address), "the name is not known", error);
  if (error) return failed(ErrorCode::kPeerGone, to_string(address), "cannot look up the name", error);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  if (endpoints.empty()) return Error(ErrorCode::kInvalidArgument, to_string(address) + ": the name has no address");
  return endpoints;
}

class TcpListener final : public Listener {
 public:
  TcpListener(std::shared_ptr<void> context, tcp::acceptor acceptor, tcp::endpoint bound, const Options& options)
      : context_(std::move(context)), acceptor_(std::move(acceptor)), bound_(std::move(bound)), options_(options) {}

  Result<std::unique_ptr<Connection>> accept() override {
    asio::error_code error;
    tcp::endpoint peer;
    tcp::socket socket(acceptor_.get_executor());
    do acceptor_.accept(socket, peer, error);
    while (error == asio::error::interrupted);
    if (error == asio::error::bad_descriptor || error == asio::error::invalid_argument ||
        error == asio::error::operation_not_supported)
      return failed(ErrorCode::kIo, address(), "cannot accept", error);
    if (error == asio::error::no_descriptors || error.value() == ENFILE || error == asio::error::no_buffer_space ||
        error == asio::error::no_memory)
      return failed(ErrorCode::kBusy, address(), "cannot accept now", error);
    // All other errors are of one connection, or pass (no memory).
    if (error) return std::unique_ptr<Connection>();
    auto connection = adopt(context_, std::move(socket), text(peer), options_);
    return connection.ok() ? std::move(connection) : std::unique_ptr<Connection>();
  }

  int wait_fd() override { return acceptor_.native_handle(); }
  std::string address() const override { return text(bound_); }
  std::uint16_t port() const override { return bound_.port(); }

 private:
  std::shared_ptr<void> context_;
  tcp::acceptor acceptor_;
  tcp::endpoint bound_;
  Options options_;
};

// Asio's blocking connect knows no deadline, so this runs the asynchronous one in a context of its own.
Status connect_until(asio::io_context& io, tcp::socket& socket, const tcp::endpoint& endpoint, const Options& options,
                     const std::string& address, std::chrono::steady_clock::time_point deadline) {
  asio::error_code error;
  socket.close(error);
  socket.open(endpoint.protocol(), error);
  if (error) return failed(ErrorCode::kIo, address, "cannot open a socket", error);
  TERRACE_RETURN_IF_ERROR(set_busy_poll(socket, options, address));
  set_buffers(socket, options);  // before connecting: the window's scale is agreed then
  bool done = false;
  socket.async_connect(endpoint, [&](const asio::error_code& result) {
    done = true;
    error = result;
  });
  io.restart();
  io.run_until(deadline);
  if (!done) {
    asio::error_code ignored;
    socket.close(ignored);
    io.restart();
    io.run();  // the handler refers to this frame: it must have been called
    return Error(ErrorCode::kDeadline, address + ": cannot connect: no answer in the time allowed");
  }
  if (error) return failed(ErrorCode::kPeerGone, address, "cannot connect", error);
  return {};
}

Result<std::unique_ptr<Listener>> listen_at(std::shared_ptr<void> context, asio::io_context& io,
                                            const std::string& address, const Options& options) {
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(const HostPort at, parse_host_port(address));
  TERRACE_ASSIGN_OR_RETURN(const auto endpoints, endpoints_of(at));
  const tcp::endpoint& endpoint = endpoints.front();
  tcp::acceptor acceptor(io);
  asio::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  set_buffers(acceptor, options);  // accepted sockets inherit them, and this
  if (!error) TERRACE_RETURN_IF_ERROR(set_busy_poll(acceptor, options, to_string(at)));
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  tcp::endpoint bound;
  if (!error) bound = acceptor.local_endpoint(error);
  if (error) return failed(ErrorCode::kIo, to_string(at), "cannot listen", error);
  return std::unique_ptr<Listener>(
      std::make_unique<TcpListener>(std::move(context), std::move(acceptor), bound, options));
}

Result<std::unique_ptr<Connection>> connect_to(std::shared_ptr<void> context, asio::io_context& io,
                                               const std::string& address, const Options& options,
                                               std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  TERRACE_RETURN_IF_ERROR(check(options));
  TERRACE_ASSIGN_OR_RETURN(const HostPort to, parse_host_port(address));
  TERRACE_ASSIGN_OR_RETURN(const auto endpoints, endpoints_of(to));
  asio::io_context connecting;
  tcp::socket socket(connecting);
  Status status;
  for (const tcp::endpoint& endpoint : endpoints) {
    status = connect_until(connecting, socket, endpoint, options, to_string(to), deadline);
    if (!status.ok()) continue;
    asio::error_code error;
    tcp::socket owned(io);
    const auto handle = socket.release(error);
    if (!error) owned.assign(endpoint.protocol(), handle, error);
    if (error) return failed(ErrorCode::kIo, to_string(to), "cannot take over the connection", error);
    return adopt(std::move(context), std::move(owned), text(endpoint), options);
  }
  return status.error();
}

Error no_descriptor(const std::string& address) {
  return Error(ErrorCode::kIo, address + ": the process had no descriptor left when its transport was made");
}

// Asio throws where it cannot set itself up: that ends here.
template <class Function>
auto guarded(const std::string& address, Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::system_error& thrown) {
    return Error(ErrorCode::kIo, fmt::format("{}: {}", address, thrown.what()));
  }
}

}  // namespace

TcpTransport::TcpTransport() {
  try {
    context_ = std::make_shared<Context>();
  } catch (const std::system_error&) {
    // No descriptor is left: listen() and connect() say so.
  }
}
TcpTransport::~TcpTransport() = default;

Result<std::unique_ptr<Listener>> TcpTransport::listen(const std::string& address, const Options& options) {
  if (!context_) return no_descriptor(address);
  return guarded(address, [&] { return listen_at(context_, context_->io, address, options); });
}

Result<std::unique_ptr<Connection>> TcpTransport::connect(const std::string& address, const Options& options,
                                                          std::chrono::milliseconds timeout) {
  if (!context_) return no_descriptor(address);
  return guarded(address, [&] { return connect_to(context_, context_->io, address, options, timeout); });
}

}  // namespace terrace::transport
