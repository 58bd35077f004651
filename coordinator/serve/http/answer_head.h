// Answers as bytes: status line, headers, chunks.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/serve/http/message.h"
#include "coordinator/serve/http/server.h"

namespace terrace::serve::http {

// What an answer's form depends on beside the answer.
struct AnswerForm {
  std::string_view id;      // x-request-id; empty: none
  std::string_view origin;  // of the asking page; empty: none
  bool keep_alive = true;
  bool http_1_0 = false;   // no chunks: a stream ends with its connection
  bool head_only = false;  // to a HEAD request: no body
};

std::string whole_answer(const ServerOptions& options, const AnswerForm& form, const Reply& reply);
std::string stream_head(const ServerOptions& options, const AnswerForm& form, const StreamHead& head);
// A piece of a stream, not empty; of an HTTP/1.0 stream the bytes as they are.
void append_piece(std::string& out, std::string_view piece, bool http_1_0);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace terrace::serve::http
