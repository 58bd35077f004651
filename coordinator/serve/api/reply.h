// A whole answer: HTTP status and JSON body; and errors as each family of clients reads them.
//
// Source  The shapes of llama-server's, OpenAI's and Anthropic's error objects; docs/http.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace terrace::serve::api {

// Which family of clients a route belongs to: it decides the shape of errors.
enum class Dialect {
  kOpenAi,     // {"error":{"code","message","type","param"}}: llama-server's and OpenAI's routes
  kAnthropic,  // {"type":"error","error":{"type","message"},"request_id"}: /v1/messages
};

struct Reply {
  int status = 200;
  std::string body;  // JSON, UTF-8
  // The client may send the same request again after so many seconds (header Retry-After). Set only where nothing was
  // done: the queue is full, the model is loading. Where neither this nor `undone` is set, errors of
  // 500 and above carry `x-should-retry: false`.
  std::optional<std::uint32_t> retry_after_s;
  // Nothing was done, but this server will not do it later either: it stops. Neither header; the client may go
  // elsewhere.
  bool undone = false;
};

struct HttpError {
  int status = 500;
  std::string type;     // "invalid_request_error", ...
  std::string message;  // one sentence
  std::string field;    // the top-level field it is about; empty: none
  // Only of exceed_context_size_error.
  std::optional<std::uint64_t> n_prompt_tokens, n_context;
  bool retry = false;   // nothing was done, and the same request may work in a moment
  bool undone = false;  // as Reply's
};

// How an error of ours is told: kInvalidArgument 400 invalid_request_error, kContextFull 400
// exceed_context_size_error, kNotFound 404 not_found_error, kUnsupported 501 not_supported_error, kBusy 503
// unavailable_error with Retry-After, kRefused (the server is stopping) 503 without; everything else 500 server_error.
HttpError to_http(const Error& error);

// `request_id` stands in Anthropic's form, where it is given.
Reply to_reply(const HttpError& error, Dialect dialect, std::string_view request_id = {});
inline Reply to_reply(const Error& error, Dialect dialect = Dialect::kOpenAi) {
  return to_reply(to_http(error), dialect);
}

// The dialect of a path: kAnthropic for /v1/messages and below, else kOpenAi.
Dialect dialect_of(std::string_view path);

// Answers of the server itself, that belong to no field: 404 "File Not Found", 405, 401 "Invalid API Key", 503
// "Loading model", 413 ...: any status with the type that belongs to it. 503 is the model that loads: with Retry-After.
Reply server_error(int status, std::string_view message, Dialect dialect = Dialect::kOpenAi);

}  // namespace terrace::serve::api
