// One client's connection: reads requests, has them admitted and handled, writes answers, and ends what takes too long.
//
// Threads  The server's thread calls everything. Exchanges reach it through ExchangeState.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "coordinator/serve/http/admission.h"
#include "coordinator/serve/http/answer_head.h"
#include "coordinator/serve/http/exchange_state.h"
#include "coordinator/serve/http/request_reader.h"
#include "coordinator/serve/http/server.h"

namespace asio {
class io_context;  // kept out of our headers
}

namespace terrace::serve::http {

class Connection;

// What connections need of their server. Called by the server's thread.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const ServerOptions& options() const = 0;
  virtual Admission& admission() = 0;
  virtual bool draining() const = 0;
  virtual std::string next_request_id() = 0;
  // Runs `handler` on a worker, or here; what it throws is logged.
  virtual void handle(const Route& route, std::shared_ptr<Exchange> exchange) = 0;
  // Takes so many bytes of the room for bodies; false: there is not so much. Negative: gives back.
  virtual bool take_body_room(std::int64_t bytes) = 0;
  // A function that has collect() called soon, while the connection lives; any thread may call it, at any time.
  virtual std::function<void()> waker(std::weak_ptr<Connection> connection) = 0;
  virtual void exchange_began() = 0;
  struct Ending {
    bool had_exchange = false;  // exchange_began() was called for it
    bool gone = false;          // the client left before the answer's end was known
    bool cut_off = false;       // it did not read
  };
  virtual void request_ended(const Served& served, const Ending& ending) = 0;
  virtual void connection_closed(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes over a connected socket. io and host are borrowed.
  Connection(asio::io_context& io, int file_descriptor, bool is_v6, ConnectionHost& host);
  ~Connection();

  void start();
  // One connection too many: gets a 503, and nothing of it is read.
  void refuse();
  // What waits for the clock: time limits and pings. Called several times a second.
  void tick(Clock::time_point now);
  // No further request is read: closes an idle connection, and others when their answer is complete.
  void drain();
  // Takes what an exchange has for the client.
  void collect();
  // Ends at once; the client of an open exchange counts as gone.
  void close();

 private:
  enum class Phase {
    kReading,    // a request
    kAnswering,  // exchange_ or a refusal
    kLingering,  // the answer is sent and the connection ends: what still comes is thrown away, so that the client can
                 // read the answer (closing with unread bytes would destroy it on its way)
    kClosed,
  };

  void read();
  void on_read(const std::error_code& error, std::size_t bytes);
  void on_end_of_input(bool orderly);
  void consume();
  void begin_request();
  void on_head();
  void on_body_bytes();
  void on_request();
  void give_body_room_back();

  void refuse_request(int status, std::string_view message);
  void answer(const Reply& reply);
  void begin_stream(const StreamHead& head);
  void append_stream(const ExchangeState::News& news);
  void flush();
  void on_written(const std::error_code& error, std::size_t bytes);
  void answer_complete();
  void linger();
  void end_request(bool complete, bool cut_off);
  AnswerForm form() const;

  struct Socket;
  const std::unique_ptr<Socket> socket_;
  ConnectionHost& host_;
  std::string remote_address_;
  std::string remote_;  // with port
  Phase phase_ = Phase::kReading;
  Clock::time_point deadline_ = Clock::time_point::max();  // of what the phase waits for

  std::string input_;  // its first input_size_ bytes came and are not consumed
  std::size_t input_size_ = 0;
  std::uint64_t discarded_ = 0;  // bytes, while lingering
  bool reading_ = false;
  bool input_ended_ = false;
  std::unique_ptr<RequestReader> reader_;
  std::int64_t body_room_ = 0;  // taken of the host

  // The request that is being read or answered.
  bool begun_ = false;  // its first byte came
  Clock::time_point began_;
  Admission::Decision admitted_;  // without the request, once that is handed over
  std::string request_path_;
  std::string origin_;
  Served served_;
  bool keep_alive_ = true;
  bool http_1_0_ = false;
  std::shared_ptr<ExchangeState> exchange_;

  // Its answer.
  std::string ping_;  // of a stream
  Clock::time_point last_output_;
  bool streaming_ = false;
  bool answer_ended_ = false;       // its last byte is in the two buffers below, or was
  bool broken_ = false;             // the stream has no end: the connection is cut behind what there is
  std::string waiting_;             // bytes to send after those in writing_
  std::size_t waiting_pieces_ = 0;  // bytes of pieces in it
  std::string writing_;
  std::size_t written_ = 0;
  std::size_t writing_pieces_ = 0;
};

}  // namespace terrace::serve::http
