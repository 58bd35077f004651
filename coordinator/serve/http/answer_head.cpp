#include "coordinator/serve/http/answer_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "coordinator/serve/http/admission.h"

namespace terrace::serve::http {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  const auto append_clean = [&out](std::string_view text) {
    std::ranges::copy_if(text, std::back_inserter(out), [](char c) { return c != '\r' && c != '\n' && c != '\0'; });
  };
  append_clean(name);
  out += ": ";
  append_clean(value);
  out += "\r\n";
}

// What every answer begins with.
std::string common_head(const ServerOptions& options, const AnswerForm& form, int status, std::string_view content_type,
                        const Headers& headers) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  append_header(out, "Server", options.server_name);
  if (!form.id.empty()) append_header(out, "x-request-id", form.id);
  if (origin_allowed(options, form.origin)) {
    append_header(out, "Access-Control-Allow-Origin", form.origin);
    append_header(out, "Access-Control-Expose-Headers", "x-request-id, x-should-retry, Retry-After");
  }
  if (!options.cors_origins.empty()) append_header(out, "Vary", "Origin");
  if (!content_type.empty()) append_header(out, "Content-Type", content_type);
  append_header(out, "X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : headers) append_header(out, name, value);
  if (form.keep_alive) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options.idle_timeout).count();
    append_header(out, "Keep-Alive", fmt::format("timeout={}", seconds));
  } else {
    append_header(out, "Connection", "close");
  }
  return out;
}

}  // namespace

std::string whole_answer(const ServerOptions& options, const AnswerForm& form, const Reply& reply) {
  std::string out = common_head(options, form, reply.status, reply.content_type, reply.headers);
  const bool has_body = reply.status >= 200 && reply.status != 204 && reply.status != 304;
  if (has_body) append_header(out, "Content-Length", std::to_string(reply.body.size()));
  out += "\r\n";
  if (has_body && !form.head_only) out += reply.body;
  return out;
}

std::string stream_head(const ServerOptions& options, const AnswerForm& form, const StreamHead& head) {
  std::string out = common_head(options, form, head.status, head.content_type, head.headers);
  append_header(out, "Cache-Control", "no-cache");
  append_header(out, "X-Accel-Buffering", "no");
  if (!form.http_1_0) append_header(out, "Transfer-Encoding", "chunked");
  out += "\r\n";
  return out;
}

void append_piece(std::string& out, std::string_view piece, bool http_1_0) {
  if (piece.empty()) return;  // an empty chunk would be the last
  if (!http_1_0) fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  out += piece;
  if (!http_1_0) out += "\r\n";
}

}  // namespace terrace::serve::http
