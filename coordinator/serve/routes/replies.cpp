#include "coordinator/serve/routes/replies.h"

#include <utility>

namespace terrace::serve {
namespace {

// The official clients send a request again after these, without being asked (and after every 500 and above).
bool would_be_sent_again(int status) { return status == 408 || status == 409 || status == 429 || status >= 500; }

}  // namespace

http::Reply to_http(api::Reply reply) {
  http::Reply out;
  out.status = reply.status;
  out.body = std::move(reply.body);
  if (reply.retry_after_s)
    out.headers.emplace_back("Retry-After", std::to_string(*reply.retry_after_s));
  else if (!reply.undone && would_be_sent_again(reply.status))
    out.headers.emplace_back("x-should-retry", "false");
  return out;
}

http::Reply error_reply(int status, std::string_view message, std::string_view path) {
  // Nothing was done of what the server refuses itself; whether and when to ask again is said by who knows it.
  http::Reply out = to_http(api::server_error(status, message, api::dialect_of(path)));
  std::erase_if(out.headers, [&](const auto& header) {
    return header.first == "Retry-After" || (header.first == "x-should-retry" && status != 500);
  });
  return out;
}

std::string as_error_event(std::string_view body, std::string_view path) {
  std::string event = api::dialect_of(path) == api::Dialect::kAnthropic ? "event: error\ndata: " : "data: ";
  event += body;
  event += "\n\n";
  return event;
}

}  // namespace terrace::serve
