// An HTTP/1.1 server: connections, limits, keys, routes and streamed answers. It knows nothing of models or JSON.
//
//   Router router;
//   router.add("GET", "/health", {.handler = [](auto exchange) { exchange->reply({.body = "{}"}); },
//                                 .runs = Route::Runs::kIo, .needs_key = false});
//   TERRACE_ASSIGN_OR_RETURN(auto server, Server::start(options, std::move(router)));
//
// One thread serves every connection and never waits for anything; `workers` threads run handlers. Requests of one
// connection are answered one after the other. Before a byte of a body is read, the head has passed, in this order:
// syntax and limits (400, 431, 501, 505), CORS preflight, names that are not ours and pages of other origins (403),
// keys (401), the rate (429), set_unavailable(), the routes (404) and the body's limit (413). A request that is refused
// before its body was read ends its connection.
//
// A client that goes away is noticed at once, also while nothing is being sent: the server always reads. A client that
// closes its sending half while its request is being worked on counts as gone.
// The library behind it and why: docs/adr/0013-http-by-beast-on-asio.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.h"
#include "common/base/result.h"
#include "coordinator/serve/http/api_keys.h"
#include "coordinator/serve/http/message.h"
#include "coordinator/serve/http/router.h"

namespace terrace::serve::http {

using Milliseconds = std::chrono::milliseconds;

// One request and its answer, shared by whoever has to do with it. Every function may be called by any thread, none of
// them blocks or waits for the client. Exactly one of reply() and begin_stream() counts, the first; where the last
// reference goes without either, the client gets a 500, and where a stream was not finished, its connection is cut so
// that the client sees that the end is missing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;

  // The whole answer.
  virtual void reply(Reply reply) = 0;

  // The head of a streamed one; then pieces; then finish(). write() copies and returns at once. False: the client is
  // gone or has more than ServerOptions::max_unsent of the stream unread (then it is cut off); nothing more will be
  // sent, and on_gone()'s callback was or is about to be called. Pieces that are written at the same time may share a
  // chunk.
  virtual bool begin_stream(StreamHead head) = 0;
  virtual bool write(std::string_view piece) = 0;
  virtual void finish() = 0;

  // Before the end: why the request could not be done, for Served::failure; the client is told by the answer. The first
  // one counts.
  virtual void note_failure(std::string_view reason) = 0;

  // `callback` is called once if the client goes, or is cut off, before the answer's end is handed over by reply() or
  // finish(): by the server's thread, or, where that has happened, at once by the caller. It must not block. It is
  // dropped when the answer is complete. One callback; a second replaces the first.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

// What became of a request; for the access log and the metrics.
struct Served {
  std::string id;
  std::string method;
  std::string path;  // the route's pattern where one matched: few different values; else empty
  std::string remote;
  int status = 0;               // 0: the client went before an answer
  bool complete = false;        // the whole answer was given to the operating system
  std::uint64_t bytes_in = 0;   // of the body
  std::uint64_t bytes_out = 0;  // with head and chunk marks
  // Why it could not be done: what note_failure() was given, or the body of an answer of 500 and above, cut short; else
  // empty.
  std::string failure = {};
  Milliseconds took{0};  // from the head's first byte to the answer's last
};

// Why nothing is answered: a 503 with this message.
struct Unavailable {
  std::string message;                         // "Loading model"
  std::optional<std::uint32_t> retry_after_s;  // header Retry-After: it will be over
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // address or name to listen on; "0.0.0.0", "::": all
  std::uint16_t port = 8080;       // 0: any free one, see Server::port()
  std::string server_name = "terrace";
  ApiKeys keys;                           // none: nobody is asked for one
  std::vector<std::string> cors_origins;  // pages of these may ask: "https://chat.example", or "*"; empty: CORS is off
  std::uint32_t workers = 4;

  std::uint32_t max_connections = 1024;       // one more gets a 503 that says so
  std::uint32_t max_header_bytes = 16 << 10;  // request line and headers
  std::uint32_t max_headers = 100;
  std::uint64_t max_body = 16ULL << 20;     // bytes, however they are framed
  std::uint64_t max_bodies = 256ULL << 20;  // bytes of all bodies that are held at one time; beyond: 503
  std::uint64_t max_unsent = 1ULL << 20;    // bytes of a stream that its client has not taken; beyond: cut off
  double requests_per_second = 0;           // of one key, or of one address where there are no keys; 0: no limit
  double burst = 20;                        // requests that may come at once above that rate

  Milliseconds header_timeout{10'000};  // from connecting, or the first byte of a further request, to the head's end
  Milliseconds body_timeout{120'000};   // from the head's end to the body's
  Milliseconds idle_timeout{30'000};    // between requests
  Milliseconds write_timeout{30'000};   // without the client taking a byte of what waits for it
  Milliseconds ping_after{10'000};      // see StreamHead::ping

  std::optional<Unavailable> unavailable;  // as set_unavailable() from the first connection on

  // Makes the answer of an error that the server itself finds, in the form that clients of `path` expect (empty:
  // unknown). Called by the server's thread. Not set: the message as plain text.
  std::function<Reply(int status, std::string_view message, std::string_view path)> error_reply;
  // Called by the server's thread when a request has its answer or its client is gone. May be empty. Must not block.
  std::function<void(const Served&)> on_served;
  Logger log =
      Logger::silent();  // what the server meets beside requests: handlers that throw, no file left to accept with
};

struct ServerCounts {
  std::uint32_t connections = 0;  // open now
  std::uint32_t exchanges = 0;    // requests whose answer is not complete
  std::uint64_t accepted = 0;     // since start, as all below
  std::uint64_t refused = 0;      // over max_connections
  std::uint64_t cut_off = 0;      // clients that did not read
  std::uint64_t gone = 0;         // clients that left before their answer was complete
};

// Around what one thread gives to several exchanges: the server's thread is woken once for all of it, at the end. What
// other threads give meanwhile waits for it too, so it is to be short. Both do nothing where the server has gone.
struct AnswerBatch {
  std::function<void()> begin, end;
};

class Server {
 public:
  // Listens and answers from the moment it returns. kInvalidArgument: options; kIo: the address cannot be bound; names
  // it.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Router router);
  virtual ~Server() = default;  // stop(0) if that was not done

  virtual std::uint16_t port() const = 0;
  virtual std::string url() const = 0;  // "http://127.0.0.1:8080"

  // While set, every request (keys and rate are checked before) gets this answer; Route::while_unavailable excepted.
  // Any thread.
  virtual void set_unavailable(std::optional<Unavailable> why) = 0;

  // No further connections, no further requests on those that are open; what is being answered goes on. Any thread.
  virtual void drain() = 0;
  // drain(); waits until every exchange is complete or `patience` is over; then cuts what is left (on_gone() is called)
  // and ends the threads. True: nothing was cut. Not from a handler or a callback. Exchanges that outlive it do
  // nothing.
  virtual bool stop(Milliseconds patience) = 0;

  virtual ServerCounts counts() const = 0;
  virtual AnswerBatch answer_batch() const = 0;
};

}  // namespace terrace::serve::http
