#include "coordinator/serve/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <utility>

namespace terrace::serve::http {
namespace {

constexpr std::size_t kReadAhead = 4 << 10;  // bytes of input beyond the longest head
constexpr Milliseconds kLinger{2000};
constexpr std::uint64_t kMaxDiscarded = 64 << 20;  // bytes of a refused request that are still listened to

constexpr std::size_t kMostOfFailure = 512;  // bytes of a body that tells why

constexpr std::string_view kNoBodyRoom =
    "the bodies of other requests take all memory that is set aside for them; try again later";

}  // namespace

struct Connection::Socket : asio::ip::tcp::socket {
  using asio::ip::tcp::socket::basic_stream_socket;
};

Connection::Connection(asio::io_context& io, int file_descriptor, bool is_v6, ConnectionHost& host)
    : socket_(std::make_unique<Socket>(io, is_v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), file_descriptor)),
      host_(host) {
  std::error_code ignored;
  const auto endpoint = socket_->remote_endpoint(ignored);
  remote_address_ = endpoint.address().to_string();
  remote_ = is_v6 ? fmt::format("[{}]:{}", remote_address_, endpoint.port())
                  : fmt::format("{}:{}", remote_address_, endpoint.port());
  socket_->set_option(asio::ip::tcp::no_delay(true), ignored);
  // A machine that is gone without a word acknowledges nothing: without this the system tries for a quarter of an hour.
  socket_->set_option(asio::socket_base::keep_alive(true), ignored);
  const int give_up_ms = static_cast<int>(host.options().write_timeout.count());
  ::setsockopt(socket_->native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof(give_up_ms));
  socket_->non_blocking(true, ignored);
}

Connection::~Connection() = default;

void Connection::start() {
  input_.resize(host_.options().max_header_bytes + kReadAhead);
  begin_request();
  deadline_ = Clock::now() + host_.options().header_timeout;
  read();
}

void Connection::refuse() {
  input_.resize(kReadAhead);
  served_.remote = remote_;
  served_.id = host_.next_request_id();
  began_ = Clock::now();
  keep_alive_ = false;
  phase_ = Phase::kAnswering;
  answer(host_.admission().error(
      503, fmt::format("all {} connections are in use; try again later", host_.options().max_connections), ""));
  read();
}

// ---- reading ----

void Connection::begin_request() {
  const ServerOptions& options = host_.options();
  reader_ = std::make_unique<RequestReader>(
      RequestReader::Limits{.header_bytes = options.max_header_bytes, .headers = options.max_headers});
  phase_ = Phase::kReading;
  begun_ = false;
  deadline_ = Clock::now() + options.idle_timeout;
  admitted_ = {};
  request_path_.clear();
  origin_.clear();
  served_ = {};
  served_.remote = remote_;
  streaming_ = answer_ended_ = broken_ = http_1_0_ = false;
  keep_alive_ = true;
}

void Connection::read() {
  if (phase_ == Phase::kClosed || reading_ || input_ended_ || input_size_ == input_.size()) return;
  reading_ = true;
  socket_->async_read_some(asio::buffer(input_.data() + input_size_, input_.size() - input_size_),
                           [self = shared_from_this()](const std::error_code& error, std::size_t bytes) {
                             self->reading_ = false;
                             self->on_read(error, bytes);
                           });
}

void Connection::on_read(const std::error_code& error, std::size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (error) return on_end_of_input(error == asio::error::eof);
  input_size_ += bytes;
  consume();
  read();
}

void Connection::on_end_of_input(bool orderly) {
  input_ended_ = true;
  // A client that has asked its last request may still read an answer that is on its way.
  if (orderly && phase_ == Phase::kAnswering && answer_ended_) {
    keep_alive_ = false;
    return;
  }
  close();
}

void Connection::consume() {
  if (phase_ == Phase::kLingering) {
    discarded_ += input_size_;
    input_size_ = 0;
    if (discarded_ > kMaxDiscarded) close();
    return;
  }
  while (phase_ == Phase::kReading && input_size_ > 0) {
    if (!begun_) {
      begun_ = true;
      began_ = Clock::now();
      deadline_ = began_ + host_.options().header_timeout;
    }
    const std::size_t used = reader_->feed({input_.data(), input_size_});
    std::copy(input_.data() + used, input_.data() + input_size_, input_.data());
    input_size_ -= used;
    switch (reader_->state()) {
      case RequestReader::State::kFailed:
        refuse_request(reader_->failure().status, reader_->failure().message);
        break;
      case RequestReader::State::kHeadDone:
        on_head();
        break;
      case RequestReader::State::kDone:
        on_body_bytes();
        if (phase_ == Phase::kReading) on_request();
        break;
      case RequestReader::State::kBody:
        on_body_bytes();
        [[fallthrough]];
      case RequestReader::State::kHead:
        // The parser wants more of a line than there is room for: of a chunk's head, which has no limit of its own.
        if (used == 0 && input_size_ == input_.size()) refuse_request(400, "a line of the request is too long");
        if (used == 0) return;
        break;
    }
  }
}

void Connection::on_head() {
  const RequestReader::Head& head = reader_->head();
  const ServerOptions& options = host_.options();
  http_1_0_ = head.http_1_0;
  keep_alive_ = head.keep_alive && !head.http_1_0 && !host_.draining();
  const auto now = Clock::now();
  admitted_ = host_.admission().decide(head, host_.next_request_id(), remote_address_, now);
  Request& request = admitted_.request;
  request.remote = remote_;
  request_path_ = request.path;
  origin_ = request.header("Origin");
  served_.id = request.id;
  served_.method = head.method;
  served_.path = admitted_.pattern;
  if (admitted_.refusal) {
    keep_alive_ = keep_alive_ && !head.has_body;
    return answer(*admitted_.refusal);
  }
  if (host_.draining()) return refuse_request(503, "the server is stopping");

  reader_->read_body(options.max_body);
  if (reader_->state() == RequestReader::State::kFailed)
    return refuse_request(reader_->failure().status, reader_->failure().message);
  const auto announced = static_cast<std::int64_t>(head.body_bytes.value_or(0));
  if (!host_.take_body_room(announced)) return refuse_request(503, kNoBodyRoom);
  body_room_ = announced;
  if (reader_->state() == RequestReader::State::kDone) return on_request();

  deadline_ = now + options.body_timeout;
  const std::string_view expected = request.header("Expect");
  if (expected == "100-continue" && !http_1_0_) {
    waiting_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  } else if (!expected.empty()) {
    refuse_request(417, "of Expect only 100-continue is known");
  }
}

void Connection::on_body_bytes() {
  const auto grown = static_cast<std::int64_t>(reader_->body_bytes()) - body_room_;
  if (grown <= 0) return;  // what a Content-Length announced was taken with the head
  if (!host_.take_body_room(grown)) return refuse_request(503, kNoBodyRoom);
  body_room_ += grown;
}

void Connection::give_body_room_back() { host_.take_body_room(-std::exchange(body_room_, 0)); }

void Connection::on_request() {
  Request request = std::move(admitted_.request);
  request.body = reader_->take_body();
  served_.bytes_in = request.body.size();
  phase_ = Phase::kAnswering;
  deadline_ = Clock::time_point::max();
  exchange_ =
      std::make_shared<ExchangeState>(std::move(request), host_.options().max_unsent, host_.waker(weak_from_this()));
  host_.exchange_began();
  host_.handle(*admitted_.route, make_exchange(exchange_));
}

// ---- answering ----

AnswerForm Connection::form() const {
  return {.id = served_.id,
          .origin = origin_,
          .keep_alive = keep_alive_,
          .http_1_0 = http_1_0_,
          .head_only = admitted_.head_only};
}

void Connection::refuse_request(int status, std::string_view message) {
  if (served_.id.empty()) served_.id = host_.next_request_id();
  keep_alive_ = false;
  answer(host_.admission().error(status, message, request_path_));
}

void Connection::answer(const Reply& reply) {
  phase_ = Phase::kAnswering;
  deadline_ = Clock::time_point::max();
  served_.status = reply.status;
  if (reply.status >= 500 && served_.failure.empty()) served_.failure = reply.body.substr(0, kMostOfFailure);
  waiting_ += whole_answer(host_.options(), form(), reply);
  answer_ended_ = true;
  flush();
}

void Connection::collect() {
  if (phase_ != Phase::kAnswering || !exchange_) return;
  const ExchangeState::News news = exchange_->collect();
  if (news.cut_off) {
    end_request(false, true);
    return close();
  }
  if (served_.failure.empty()) served_.failure = news.failure;
  if (news.reply) return answer(*news.reply);
  if (news.head) begin_stream(*news.head);
  if (streaming_) append_stream(news);
  if (news.abandoned && !streaming_)
    return answer(
        host_.admission().error(500, "this request was given no answer: a fault of the server", request_path_));
  flush();
}

void Connection::begin_stream(const StreamHead& head) {
  streaming_ = true;
  keep_alive_ = keep_alive_ && !http_1_0_;
  ping_ = head.ping;
  served_.status = head.status;
  waiting_ += stream_head(host_.options(), form(), head);
}

void Connection::append_stream(const ExchangeState::News& news) {
  if (!admitted_.head_only) append_piece(waiting_, news.pieces, http_1_0_);
  waiting_pieces_ += news.pieces.size();
  if (news.finished && !http_1_0_ && !admitted_.head_only) waiting_ += kLastChunk;
  if (news.finished || news.abandoned) answer_ended_ = true;
  if (news.abandoned) {
    broken_ = true;
    keep_alive_ = false;
  }
}

void Connection::flush() {
  if (phase_ == Phase::kClosed || written_ < writing_.size()) return;  // on_written() goes on
  if (exchange_ && writing_pieces_ > 0) exchange_->sent(std::exchange(writing_pieces_, 0));
  if (waiting_.empty()) {
    if (phase_ == Phase::kAnswering) deadline_ = Clock::time_point::max();
    writing_.clear();
    written_ = 0;
    if (answer_ended_) answer_complete();
    return;
  }
  writing_ = std::exchange(waiting_, {});
  writing_pieces_ = std::exchange(waiting_pieces_, 0);
  written_ = 0;
  if (phase_ == Phase::kAnswering) deadline_ = Clock::now() + host_.options().write_timeout;
  on_written({}, 0);
}

void Connection::on_written(const std::error_code& error, std::size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  written_ += bytes;
  served_.bytes_out += bytes;
  last_output_ = Clock::now();
  if (written_ == writing_.size()) return flush();
  if (bytes > 0 && phase_ == Phase::kAnswering) deadline_ = last_output_ + host_.options().write_timeout;
  socket_->async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](const std::error_code& e, std::size_t n) { self->on_written(e, n); });
}

void Connection::answer_complete() {
  const bool broken = broken_;
  end_request(!broken, false);
  if (broken) {
    // Without chunks only a reset tells a cut stream from one that ended.
    std::error_code ignored;
    if (http_1_0_) socket_->set_option(asio::socket_base::linger(true, 0), ignored);
    return close();
  }
  if (!keep_alive_ || host_.draining()) return linger();
  begin_request();
  consume();  // a further request may have come already
  read();
}

void Connection::end_request(bool complete, bool cut_off) {
  if (served_.id.empty()) return;  // nothing was asked yet, or this was told before
  ConnectionHost::Ending ending{.had_exchange = exchange_ != nullptr, .gone = false, .cut_off = cut_off};
  if (exchange_) ending.gone = exchange_->client_gone() && !cut_off;
  exchange_ = nullptr;
  give_body_room_back();
  served_.complete = complete;
  served_.took = std::chrono::duration_cast<Milliseconds>(Clock::now() - began_);
  host_.request_ended(std::exchange(served_, {}), ending);
}

// ---- ends ----

void Connection::linger() {
  phase_ = Phase::kLingering;
  deadline_ = Clock::now() + kLinger;
  std::error_code ignored;
  socket_->shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (input_ended_) return close();
  consume();
  read();
}

void Connection::tick(Clock::time_point now) {
  if (now >= deadline_) {
    if (phase_ == Phase::kAnswering) end_request(false, true);
    if (phase_ != Phase::kReading || !begun_) return close();
    return refuse_request(408, reader_->state() == RequestReader::State::kHead ? "the request's head took too long"
                                                                               : "the request's body took too long");
  }
  const bool silent = streaming_ && !answer_ended_ && waiting_.empty() && written_ == writing_.size();
  if (silent && !ping_.empty() && now - last_output_ >= host_.options().ping_after) {
    append_piece(waiting_, ping_, http_1_0_);
    flush();
  }
}

void Connection::drain() {
  keep_alive_ = false;
  if (phase_ == Phase::kReading && !begun_) close();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();  // connection_closed() lets go of it
  phase_ = Phase::kClosed;
  std::error_code ignored;
  socket_->shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_->close(ignored);
  end_request(false, false);
  host_.connection_closed(*this);
}

}  // namespace terrace::serve::http
