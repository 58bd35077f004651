// Who may ask what: everything that is decided when a request's head is there and nothing of its body is.
//
// One owner thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/machine_identity.h"
#include "coordinator/serve/http/host_name.h"
#include "coordinator/serve/http/message.h"
#include "coordinator/serve/http/rate_limit.h"
#include "coordinator/serve/http/request_reader.h"
#include "coordinator/serve/http/server.h"

namespace terrace::serve::http {

class Admission {
 public:
  // Both borrowed.
  Admission(const ServerOptions& options, const Router& router)
      : options_(options),
        router_(router),
        host_names_(options.host, options.cors_origins, machine_name()),
        rate_(options.requests_per_second, options.burst) {}

  // While it lasts, see Server::set_unavailable().
  void set_unavailable(std::optional<Unavailable> why) { unavailable_ = std::move(why); }

  struct Decision {
    Request request;               // without body
    const Route* route = nullptr;  // null: `refusal` is set
    std::string_view pattern;      // of the route
    bool head_only = false;        // a HEAD request
    std::optional<Reply> refusal;
  };
  // id: for request.id, where the client gives none. remote_address: without port.
  Decision decide(const RequestReader::Head& head, std::string id, std::string_view remote_address,
                  std::chrono::steady_clock::time_point now);

  // The answer to an error that the server itself finds.
  Reply error(int status, std::string_view message, std::string_view path) const;

 private:
  std::optional<Reply> check_host(const Request& request) const;
  std::optional<Reply> check_origin(const Request& request) const;
  std::optional<Reply> check_key(Request& request, std::string_view remote_address, bool needed) const;
  std::optional<Reply> check_rate(const Request& request, std::chrono::steady_clock::time_point now);
  Reply no_route(const Request& request, const Router::Match& match, bool options_asked) const;

  const ServerOptions& options_;
  const Router& router_;
  const HostNames host_names_;
  RateLimit rate_;
  std::optional<Unavailable> unavailable_;
};

// Whether a page of that origin (the header's value, empty: no browser) may read answers.
bool origin_allowed(const ServerOptions& options, std::string_view origin);

}  // namespace terrace::serve::http
