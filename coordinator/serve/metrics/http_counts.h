// What the HTTP side of the server counts, for Prometheus: requests by route and status, connections, bytes, and whom a
// limit has turned away.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/families.h"
#include "coordinator/serve/http/server.h"

namespace terrace::serve {

// Any thread.
class HttpCounts {
 public:
  // Of ServerOptions::on_served. Routes are as many as the router has, so what is kept is bounded.
  void add(const http::Served& served);
  // `server`: its own counts at this moment.
  std::vector<metrics::Family> families(const http::ServerCounts& server) const;

 private:
  using RouteAndStatus = std::pair<std::string, int>;

  mutable std::mutex mutex_;
  std::map<RouteAndStatus, std::uint64_t> requests_;
  std::uint64_t body_bytes_ = 0;
  std::uint64_t answer_bytes_ = 0;
};

}  // namespace terrace::serve
