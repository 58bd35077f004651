// Which handler answers which method and path.
//
// Filled before the server starts, then only read, by several threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/http/message.h"

namespace terrace::serve::http {

class Exchange;

// Answers through the exchange, at once or later from any thread, and returns; see Exchange. What it throws becomes a
// 500 (or the end of a stream that has begun).
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct Route {
  Handler handler;
  // kWorker: reads JSON, renders, tokenises: takes milliseconds, on one of a few threads. kIo: answers from memory
  // within microseconds, on the thread that serves all connections: health and metrics, which have to come whatever
  // else does.
  enum class Runs { kWorker, kIo } runs = Runs::kWorker;
  bool needs_key = true;           // false: open to all, even where keys are set
  bool while_unavailable = false;  // true: its handler is asked even while Server::set_unavailable() holds
};

class Router {
 public:
  // path: "/v1/models", or with open parts "/slots/{id}", each of which takes one part of the path, never an empty one.
  // A pair that was added before is a bug.
  void add(std::string method, std::string path, Route route);

  struct Match {
    const Route* route = nullptr;      // null: nobody answers this
    std::string_view pattern;          // its path, as it was added
    Headers parameters;                // of the open parts
    std::vector<std::string> methods;  // known for this path, whether or not `method` is among them
  };
  // Borrows from this.
  Match find(std::string_view method, std::string_view path) const;

  // "GET /v1/models", in the order in which they were added.
  std::vector<std::string> routes() const;

 private:
  struct Entry {
    std::string method;
    std::string path;
    std::vector<std::string> parts;  // "{id}": open
    Route route;
  };
  std::vector<Entry> entries_;
};

}  // namespace terrace::serve::http
