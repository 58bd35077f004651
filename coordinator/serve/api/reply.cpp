#include "coordinator/serve/api/reply.h"

#include <array>
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/json_text.h"

namespace terrace::serve::api {
namespace {

struct StatusType {
  int status;
  const char* type;       // llama-server's word
  const char* anthropic;  // Anthropic's
};
constexpr std::array<StatusType, 13> kTypes{{
    {400, "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {405, "not_found_error", "not_found_error"},
    {408, "invalid_request_error", "timeout_error"},
    {411, "invalid_request_error", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_error"},
    {431, "invalid_request_error", "invalid_request_error"},
    {500, "server_error", "api_error"},
    {501, "not_supported_error", "invalid_request_error"},
    {503, "unavailable_error", "overloaded_error"},
}};

const StatusType& type_of(int status) {
  for (const StatusType& row : kTypes)
    if (row.status == status) return row;
  return status < 500 ? kTypes[0] : kTypes[10];
}

constexpr std::uint32_t kRetryAfterSeconds = 2;

}  // namespace

HttpError to_http(const Error& error) {
  const auto make = [&](int status) {
    return HttpError{status, type_of(status).type, error.text(), {}, {}, {}, false, false};
  };
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return make(400);
    case ErrorCode::kContextFull: {
      HttpError full = make(400);
      full.type = "exceed_context_size_error";
      return full;
    }
    case ErrorCode::kNotFound:
      return make(404);
    case ErrorCode::kUnsupported:
      return make(501);
    case ErrorCode::kBusy: {
      HttpError busy = make(503);
      busy.retry = true;
      return busy;
    }
    case ErrorCode::kRefused:
      return make(503);
    default:
      return make(500);
  }
}

Reply to_reply(const HttpError& error, Dialect dialect, std::string_view request_id) {
  Reply reply;
  reply.status = error.status;
  reply.undone = error.undone;
  if (error.retry) reply.retry_after_s = kRetryAfterSeconds;
  Json body;
  if (dialect == Dialect::kAnthropic) {
    body = {{"type", "error"}, {"error", Json{{"type", type_of(error.status).anthropic}, {"message", error.message}}}};
    if (!request_id.empty()) body["request_id"] = request_id;
  } else {
    Json inner{{"code", error.status}, {"message", error.message}, {"type", error.type}};
    if (!error.field.empty()) inner["param"] = error.field;
    if (error.n_prompt_tokens) inner["n_prompt_tokens"] = *error.n_prompt_tokens;
    if (error.n_context) inner["n_ctx"] = *error.n_context;
    body = {{"error", std::move(inner)}};
  }
  reply.body = dump(body);
  return reply;
}

Dialect dialect_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? Dialect::kAnthropic : Dialect::kOpenAi;
}

Reply server_error(int status, std::string_view message, Dialect dialect) {
  HttpError error{status, type_of(status).type, std::string(message), {}, {}, {}, status == 503, false};
  return to_reply(error, dialect);
}

}  // namespace terrace::serve::api
