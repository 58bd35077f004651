#include "coordinator/serve/http/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/security/random.h"
#include "common/threads/start.h"
#include "coordinator/serve/http/connection.h"
#include "coordinator/serve/http/wakeups.h"
#include "coordinator/serve/http/workers.h"

namespace terrace::serve::http {
namespace {

using asio::ip::tcp;

constexpr Milliseconds kTick{100};
// Connections beyond the limit that are being told so; one more is closed without a word.
constexpr std::uint32_t kMaxRefusals = 64;

Status check(const ServerOptions& o) {
  const auto bad = [](std::string_view what) { return Error(ErrorCode::kInvalidArgument, std::string(what)); };
  if (o.workers == 0) return bad("an HTTP server needs at least one worker");
  if (o.max_connections == 0) return bad("an HTTP server needs room for at least one connection");
  if (o.max_header_bytes < 256 || o.max_header_bytes > (1U << 20))
    return bad("the limit of a request's head must be between 256 bytes and 1 MiB");
  for (const Milliseconds limit : {o.header_timeout, o.body_timeout, o.idle_timeout, o.write_timeout, o.ping_after})
    if (limit <= Milliseconds(0)) return bad("the time limits of an HTTP server must be above 0");
  return {};
}

class AsioServer final : public Server, public ConnectionHost {
 public:
  AsioServer(ServerOptions options, Router router)
      : options_(std::move(options)), router_(std::move(router)), admission_(options_, router_) {
    admission_.set_unavailable(options_.unavailable);
  }
  ~AsioServer() override { stop(Milliseconds(0)); }

  Status listen();
  Status run();

  std::uint16_t port() const override { return port_; }
  std::string url() const override { return url_; }
  void set_unavailable(std::optional<Unavailable> why) override;
  void drain() override;
  bool stop(Milliseconds patience) override;
  ServerCounts counts() const override;
  AnswerBatch answer_batch() const override;

  // ---- ConnectionHost: the server's thread ----
  const ServerOptions& options() const override { return options_; }
  Admission& admission() override { return admission_; }
  bool draining() const override { return draining_; }
  std::string next_request_id() override { return fmt::format("{}-{:x}", id_prefix_, ++last_id_); }
  void handle(const Route& route, std::shared_ptr<Exchange> exchange) override;
  bool take_body_room(std::int64_t bytes) override;
  std::function<void()> waker(std::weak_ptr<Connection> connection) override;
  void exchange_began() override;
  void request_ended(const Served& served, const Ending& ending) override;
  void connection_closed(Connection& connection) override;

 private:
  void accept();
  void take(tcp::socket socket);
  void tick();
  void drain_here();
  void collect_woken();
  void count_connections();  // with mutex_
  void serve();
  // A copy: what is called of them may close some.
  std::vector<std::shared_ptr<Connection>> open_connections() const;
  void call(const Route& route, std::shared_ptr<Exchange> exchange) const;

  const ServerOptions options_;
  const Router router_;
  std::string url_;
  std::uint16_t port_ = 0;
  std::string id_prefix_;

  // Shared with the wakers of exchanges, which may outlive the server.
  std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  std::shared_ptr<Wakeups> wakeups_ =
      std::make_shared<Wakeups>([io = io_, this] { asio::post(*io, [this] { collect_woken(); }); });
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer timer_{*io_};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::thread thread_;
  Workers workers_;

  // Of the server's thread.
  Admission admission_;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  std::uint64_t last_id_ = 0;
  std::int64_t body_bytes_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  bool accept_waits_ = false;  // there was no file descriptor: tick() tries again

  mutable std::mutex mutex_;  // guards counts_
  std::condition_variable quiet_;
  ServerCounts counts_;
  std::once_flag stopped_;
  bool all_ended_ = false;
};

Status AsioServer::listen() {
  std::array<std::byte, 6> random{};
  TERRACE_RETURN_IF_ERROR(security::random_bytes(random));
  id_prefix_ = "req-" + security::to_hex(random);

  std::error_code error;
  tcp::resolver resolver(*io_);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  const auto failed = [&](std::string_view what) {
    return Error(ErrorCode::kIo, fmt::format("{}:{}: {}: {}", options_.host, options_.port, what, error.message()));
  };
  if (error || found.empty()) return failed("no address to listen on");
  // Of a name that stands for both ("localhost") the address that more clients try first.
  const auto v4 = std::ranges::find_if(found, [](const auto& entry) { return entry.endpoint().address().is_v4(); });
  const tcp::endpoint endpoint = v4 != found.end() ? v4->endpoint() : found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("cannot listen");
  port_ = acceptor_.local_endpoint(error).port();
  url_ = fmt::format(fmt::runtime(options_.host.find(':') == std::string::npos ? "http://{}:{}" : "http://[{}]:{}"),
                     options_.host, port_);
  return {};
}

Status AsioServer::run() {
  TERRACE_RETURN_IF_ERROR(workers_.start(options_.workers));
  work_.emplace(io_->get_executor());
  accept();
  tick();
  TERRACE_ASSIGN_OR_RETURN(thread_, start_thread("terrace-http", [this] { serve(); }));
  return {};
}

void AsioServer::serve() {
  // Nothing here throws but for want of memory: then the connection that met it waits for its time limit, others go on.
  for (;;) {
    try {
      io_->run();
      return;
    } catch (const std::exception& error) {
      options_.log.error("{}: {}", url_, error.what());
    }
  }
}

void AsioServer::accept() {
  acceptor_.async_accept([this](const std::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (!error) {
      take(std::move(socket));
      return accept();
    }
    // No file descriptor or no memory is left, or the client has gone already: whatever it is, the next may do.
    if (!std::exchange(accept_waits_, true)) options_.log.warn("{}: accept: {}; trying again", url_, error.message());
  });
}

void AsioServer::take(tcp::socket socket) {
  const bool full = connections_.size() >= options_.max_connections;
  const bool silently = connections_.size() >= std::size_t{options_.max_connections} + kMaxRefusals;
  std::error_code error;
  const bool is_v6 = socket.local_endpoint(error).protocol() == tcp::v6();
  const int file_descriptor = silently || error ? -1 : socket.release(error);
  if (file_descriptor >= 0 && !error) {
    auto connection = std::make_shared<Connection>(*io_, file_descriptor, is_v6, *this);
    connections_.emplace(connection.get(), connection);
    if (full)
      connection->refuse();
    else
      connection->start();
  }
  const std::scoped_lock lock(mutex_);
  ++(full ? counts_.refused : counts_.accepted);
  count_connections();
}

void AsioServer::tick() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](const std::error_code& error) {
    if (error || stopping_) return;
    const auto now = Connection::Clock::now();
    for (const auto& connection : open_connections()) connection->tick(now);
    if (std::exchange(accept_waits_, false)) accept();
    tick();
  });
}

std::vector<std::shared_ptr<Connection>> AsioServer::open_connections() const {
  std::vector<std::shared_ptr<Connection>> open;
  open.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) open.push_back(connection);
  return open;
}

void AsioServer::call(const Route& route, std::shared_ptr<Exchange> exchange) const {
  // Handlers are others' code: what they throw ends their request, not the server.
  const std::string id = exchange->request().id;
  try {
    route.handler(std::move(exchange));
  } catch (const std::exception& error) {
    options_.log.error("{}: a handler threw: {}", id, error.what());
  }
}

void AsioServer::handle(const Route& route, std::shared_ptr<Exchange> exchange) {
  if (route.runs == Route::Runs::kIo) return call(route, std::move(exchange));
  workers_.run([this, &route, exchange = std::move(exchange)]() mutable { call(route, std::move(exchange)); });
}

bool AsioServer::take_body_room(std::int64_t bytes) {
  if (bytes > 0 && body_bytes_ + bytes > static_cast<std::int64_t>(options_.max_bodies)) return false;
  body_bytes_ += bytes;
  return true;
}

std::function<void()> AsioServer::waker(std::weak_ptr<Connection> connection) {
  return [wakeups = wakeups_, connection = std::move(connection)] { wakeups->wake(connection); };
}

AnswerBatch AsioServer::answer_batch() const {
  return {.begin = [wakeups = wakeups_] { wakeups->begin_batch(); },
          .end = [wakeups = wakeups_] { wakeups->end_batch(); }};
}

// Runs on the server's thread alone, so never once that has ended.
void AsioServer::collect_woken() {
  for (const std::weak_ptr<Connection>& connection : wakeups_->take())
    if (const auto live = connection.lock()) live->collect();
}

void AsioServer::exchange_began() {
  const std::scoped_lock lock(mutex_);
  ++counts_.exchanges;
}

void AsioServer::request_ended(const Served& served, const Ending& ending) {
  {
    const std::scoped_lock lock(mutex_);
    if (ending.had_exchange) --counts_.exchanges;
    if (ending.gone) ++counts_.gone;
    if (ending.cut_off) ++counts_.cut_off;
  }
  quiet_.notify_all();
  if (options_.on_served) options_.on_served(served);
}

void AsioServer::connection_closed(Connection& connection) {
  connections_.erase(&connection);
  const std::scoped_lock lock(mutex_);
  count_connections();
}

void AsioServer::count_connections() {
  counts_.connections = std::min(static_cast<std::uint32_t>(connections_.size()), options_.max_connections);
}

void AsioServer::set_unavailable(std::optional<Unavailable> why) {
  asio::post(*io_, [this, why = std::move(why)]() mutable { admission_.set_unavailable(std::move(why)); });
}

void AsioServer::drain() {
  asio::post(*io_, [this] { drain_here(); });
}

void AsioServer::drain_here() {
  draining_ = true;
  std::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& connection : open_connections()) connection->drain();
}

bool AsioServer::stop(Milliseconds patience) {
  std::call_once(stopped_, [&] {
    if (!thread_.joinable()) return;
    drain();
    {
      std::unique_lock lock(mutex_);
      all_ended_ = quiet_.wait_for(lock, patience, [this] { return counts_.exchanges == 0; });
    }
    asio::post(*io_, [this] {
      stopping_ = true;
      for (const auto& connection : open_connections()) connection->close();
      timer_.cancel();
      work_.reset();
    });
    thread_.join();
    workers_.stop();
  });
  return all_ended_;
}

ServerCounts AsioServer::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Router router) {
  TERRACE_RETURN_IF_ERROR(check(options));
  auto server = std::make_unique<AsioServer>(std::move(options), std::move(router));
  TERRACE_RETURN_IF_ERROR(server->listen());
  TERRACE_RETURN_IF_ERROR(server->run());
  return Result<std::unique_ptr<Server>>(std::move(server));
}

}  // namespace terrace::serve::http
