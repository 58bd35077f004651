#include "coordinator/serve/metrics/http_counts.h"

#include <string_view>

namespace terrace::serve {
namespace {

using metrics::Family;
using metrics::Kind;
using metrics::Sample;

// What the server answers where one of its limits was passed.
struct Limit {
  int status;
  const char* name;
};
constexpr Limit kLimits[] = {{408, "time"}, {413, "body"}, {429, "rate"}, {431, "head"}};

// Of requests that no route matches, and of those whose head was not read.
constexpr std::string_view kNoRoute = "none";

Sample number(std::uint64_t value, metrics::Labels labels = {}) {
  return {static_cast<double>(value), std::move(labels), {}};
}

}  // namespace

void HttpCounts::add(const http::Served& served) {
  const std::lock_guard lock(mutex_);
  ++requests_[{served.path, served.status}];
  body_bytes_ += served.bytes_in;
  answer_bytes_ += served.bytes_out;
}

std::vector<Family> HttpCounts::families(const http::ServerCounts& server) const {
  Family requests{"terrace_http_requests_total",
                  Kind::kCounter,
                  "Requests by route and by what they were answered; status 0: the client left before.",
                  {}};
  Family refused{
      "terrace_http_refused_total", Kind::kCounter, "Clients that a limit of the HTTP server turned away.", {}};
  Family bytes{
      "terrace_http_bytes_total", Kind::kCounter, "Bytes of requests' bodies, and of answers with their heads.", {}};
  {
    const std::lock_guard lock(mutex_);
    std::map<int, std::uint64_t> by_status;
    for (const auto& [key, n] : requests_) {
      const auto& [route, status] = key;
      requests.samples.push_back(
          number(n, {{"route", route.empty() ? std::string(kNoRoute) : route}, {"status", std::to_string(status)}}));
      by_status[status] += n;
    }
    for (const Limit& limit : kLimits)
      refused.samples.push_back(number(by_status[limit.status], {{"limit", limit.name}}));
    bytes.samples = {number(body_bytes_, {{"direction", "in"}}), number(answer_bytes_, {{"direction", "out"}})};
  }
  refused.samples.push_back(number(server.refused, {{"limit", "connections"}}));
  refused.samples.push_back(number(server.cut_off, {{"limit", "unread"}}));
  return {std::move(requests),
          {"terrace_http_connections", Kind::kGauge, "Open connections.", {number(server.connections)}},
          {"terrace_http_open_requests",
           Kind::kGauge,
           "Requests whose answer is not complete.",
           {number(server.exchanges)}},
          {"terrace_http_connections_total", Kind::kCounter, "Connections that were taken.", {number(server.accepted)}},
          std::move(refused),
          {"terrace_http_gone_total",
           Kind::kCounter,
           "Clients that left before their answer was complete.",
           {number(server.gone)}},
          std::move(bytes)};
}

}  // namespace terrace::serve
