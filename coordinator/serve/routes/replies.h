// Answers of coordinator/serve/api as answers of the HTTP server.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/serve/api/reply.h"
#include "coordinator/serve/http/message.h"

namespace terrace::serve {

inline constexpr std::string_view kEventStream = "text/event-stream";

// With Retry-After where nothing was done; else `x-should-retry: false` on what clients would send again of their own.
http::Reply to_http(api::Reply reply);

// As ServerOptions::error_reply.
http::Reply error_reply(int status, std::string_view message, std::string_view path);

// The body of an error as the last event of a stream, in the form that clients of `path` read.
std::string as_error_event(std::string_view body, std::string_view path);

}  // namespace terrace::serve
