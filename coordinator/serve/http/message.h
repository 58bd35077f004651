// What a client asked and what it is answered, as plain values: no socket, no library, no JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::serve::http {

using Headers = std::vector<std::pair<std::string, std::string>>;  // name, value; in the order of the message

struct Request {
  std::string method;  // "GET", "POST"; of a HEAD request "GET": the server leaves the body out
  std::string path;    // "/slots/3": percent-decoded, without query
  Headers query;       // of "?action=save&x": {"action", "save"}, {"x", ""}; percent-decoded
  Headers parameters;  // what the route's pattern left open: of "/slots/{id}" {"id", "3"}
  Headers headers;     // values without white space around them
  std::string body;    // whole; within ServerOptions::max_body
  std::string id;      // for logs and the client: the x-request-id of the answer
  std::string remote;  // "127.0.0.1:53112"
  std::string client;  // whom limits and queues count it to: "key 0", or without keys the address, "127.0.0.1"
  bool http_1_0 = false;

  // The first of that name; empty or nullopt where there is none. Header names in any case. Borrowed from this.
  std::string_view header(std::string_view name) const;
  std::optional<std::string_view> query_value(std::string_view name) const;
  std::string_view parameter(std::string_view name) const;
};

// An answer that is known as a whole. The server adds Content-Length, Server, x-request-id, connection and CORS
// headers.
struct Reply {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::string body = {};
  Headers headers = {};  // further ones: Retry-After, x-should-retry; no line breaks in them (they would be cut out)
};

// The beginning of an answer that comes in pieces. The server adds Transfer-Encoding and, beside the above,
// Cache-Control: no-cache and X-Accel-Buffering: no, without which proxies hold streams back.
struct StreamHead {
  int status = 200;
  std::string content_type = "text/event-stream";
  Headers headers = {};
  // Sent whenever nothing else was for ServerOptions::ping_after: an SSE comment, which readers skip, keeps proxies
  // from cutting a connection whose prompt takes minutes. Empty: none.
  std::string ping = ": ping\n\n";
};

// "OK", "Not Found"; of a number that is not registered "Unknown".
std::string_view reason_phrase(int status);

}  // namespace terrace::serve::http
