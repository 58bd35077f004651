#include "coordinator/serve/http/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/serve/http/target.h"

namespace terrace::serve::http {
namespace {

constexpr std::size_t kMaxClientId = 64;

// A request id that a client brings along goes into logs and headers: only what cannot be mistaken for anything else.
bool usable_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxClientId && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

// "Authorization: Bearer KEY" (the scheme in any case), or "X-Api-Key: KEY".
std::string_view key_of(const Request& request) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view value = request.header("Authorization");
  const bool bearer = value.size() > kScheme.size() &&
                      std::ranges::equal(value.substr(0, kScheme.size()), kScheme, {}, [](char c) { return c | ' '; });
  if (!bearer) return request.header("X-Api-Key");
  value.remove_prefix(kScheme.size());
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

bool is_preflight(const Request& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

Reply preflight_answer() {
  return {.status = 204,
          .content_type = "",
          .body = "",
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                      {"Access-Control-Allow-Headers",
                       "Authorization, Content-Type, X-Api-Key, X-Request-Id, anthropic-version, anthropic-beta, "
                       "openai-organization, openai-project, x-stainless-arch, x-stainless-lang, x-stainless-os, "
                       "x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, "
                       "x-stainless-runtime-version, x-stainless-timeout"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

bool origin_allowed(const ServerOptions& options, std::string_view origin) {
  return !origin.empty() &&
         std::ranges::any_of(options.cors_origins, [&](const std::string& o) { return o == "*" || o == origin; });
}

Reply Admission::error(int status, std::string_view message, std::string_view path) const {
  if (options_.error_reply) return options_.error_reply(status, message, path);
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .body = std::string(message) + "\n",
          .headers = {}};
}

// A page whose own name is pointed at this machine once it is loaded may read what it is answered, unlike other pages.
std::optional<Reply> Admission::check_host(const Request& request) const {
  const std::string_view host = request.header("Host");
  if (!options_.keys.empty() || host_names_.allowed(host)) return std::nullopt;
  return error(403,
               fmt::format("this server does not answer by the name {} without an API key; ask by its address, or let "
                           "the name in with --cors-origin http://{}",
                           host, host),
               request.path);
}

// Without keys whoever reaches the server may use it, and every web page that this machine's user opens reaches
// loopback: it could not read the answers, but make the model work and erase slots. Browsers say where a page is from.
std::optional<Reply> Admission::check_origin(const Request& request) const {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || request.method == "GET" || !options_.keys.empty() || origin_allowed(options_, origin))
    return std::nullopt;
  const std::size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("Host")) return std::nullopt;
  return error(403, fmt::format("a page of {} asks; --cors-origin lets pages of other origins ask", origin),
               request.path);
}

std::optional<Reply> Admission::check_key(Request& request, std::string_view remote_address, bool needed) const {
  request.client = remote_address;
  if (options_.keys.empty()) return std::nullopt;
  const auto key = options_.keys.find(key_of(request));
  if (key) request.client = fmt::format("key {}", *key);
  if (key || !needed) return std::nullopt;
  Reply refusal = error(401, "Invalid API Key", request.path);
  refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
  return refusal;
}

std::optional<Reply> Admission::check_rate(const Request& request, std::chrono::steady_clock::time_point now) {
  const double wait = rate_.take(request.client, now);
  if (wait <= 0) return std::nullopt;
  Reply refusal = error(429,
                        fmt::format("more than {} requests a second; nothing was done, the next may come in {:.1f} s",
                                    options_.requests_per_second, wait),
                        request.path);
  refusal.headers.emplace_back("Retry-After", fmt::format("{:.0f}", std::ceil(wait)));
  return refusal;
}

Reply Admission::no_route(const Request& request, const Router::Match& match, bool options_asked) const {
  if (match.methods.empty()) return error(404, "File Not Found", request.path);
  const std::string allowed = fmt::format("{}, OPTIONS", fmt::join(match.methods, ", "));
  if (options_asked) return {.status = 204, .content_type = "", .body = "", .headers = {{"Allow", allowed}}};
  // Where a llama-server knows the path but not the method it says the same as for a path that it does not know.
  Reply refusal = error(404, "File Not Found", request.path);
  refusal.headers.emplace_back("Allow", allowed);
  return refusal;
}

Admission::Decision Admission::decide(const RequestReader::Head& head, std::string id, std::string_view remote_address,
                                      std::chrono::steady_clock::time_point now) {
  Decision decision;
  Request& request = decision.request;
  decision.head_only = head.method == "HEAD";
  request.method = decision.head_only ? "GET" : head.method;
  request.headers = head.headers;
  request.http_1_0 = head.http_1_0;
  const std::string_view asked_id = request.header("X-Request-Id");
  request.id = usable_id(asked_id) ? std::string(asked_id) : std::move(id);

  auto target = parse_target(head.target);
  if (!target) {
    decision.refusal = error(400, "the request's target is neither a path nor an address that can be decoded", "");
    return decision;
  }
  request.path = std::move(target->path);
  request.query = std::move(target->query);

  if (is_preflight(request) && origin_allowed(options_, request.header("Origin"))) {
    decision.refusal = preflight_answer();
    return decision;
  }
  Router::Match match = router_.find(request.method, request.path);
  decision.pattern = match.pattern;
  const bool needs_key = match.route == nullptr || match.route->needs_key;
  decision.refusal = check_host(request);
  if (!decision.refusal) decision.refusal = check_origin(request);
  if (decision.refusal) return decision;
  decision.refusal = check_key(request, remote_address, needs_key);
  // Wrong keys count to their address, so that they cannot be tried at full speed. Open routes are for monitors.
  if (needs_key)
    if (auto too_many = check_rate(request, now)) decision.refusal = std::move(too_many);
  if (decision.refusal) return decision;

  if (unavailable_ && (match.route == nullptr || !match.route->while_unavailable)) {
    decision.refusal = error(503, unavailable_->message, request.path);
    if (unavailable_->retry_after_s)
      decision.refusal->headers.emplace_back("Retry-After", std::to_string(*unavailable_->retry_after_s));
  } else if (match.route == nullptr) {
    decision.refusal = no_route(request, match, request.method == "OPTIONS");
  } else {
    request.parameters = std::move(match.parameters);
    decision.route = match.route;
  }
  return decision;
}

}  // namespace terrace::serve::http
