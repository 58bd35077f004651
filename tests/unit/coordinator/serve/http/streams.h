// A route whose exchanges the test answers itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "tests/unit/coordinator/serve/http/client.h"

namespace terrace::serve::http {

class Streams {
 public:
  // test_router() and POST /stream. This outlives the server.
  Router router() {
    Router router = test_router();
    router.add("POST", "/stream", {.handler = [this](std::shared_ptr<Exchange> exchange) {
                 const std::scoped_lock lock(mutex_);
                 waiting_.push_back(std::move(exchange));
                 came_.notify_one();
               }});
    return router;
  }
  // The next request to /stream, in the order of coming; throws (the test fails) when none comes in ten seconds.
  std::shared_ptr<Exchange> next() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds(10), [this] { return !waiting_.empty(); }))
      throw std::runtime_error("no request came");
    auto exchange = std::move(waiting_.front());
    waiting_.pop_front();
    return exchange;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::shared_ptr<Exchange>> waiting_;
};

// A server with one request to /stream whose answer is still to come. A plain struct: tests take it apart.
struct OneStream {
  Streams streams;
  std::unique_ptr<Server> server;
  Client client;
  std::shared_ptr<Exchange> exchange;

  explicit OneStream(ServerOptions options = test_options(), int receive_buffer = 0)
      : server(start(std::move(options), streams.router())), client(server->port(), receive_buffer) {
    client.send(post("/stream", "{}"));
    exchange = streams.next();
  }
};

}  // namespace terrace::serve::http
