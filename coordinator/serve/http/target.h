// The request target of an HTTP request line: path and query, percent-decoded (RFC 3986, RFC 9112 3.2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/serve/http/message.h"

namespace terrace::serve::http {

struct Target {
  std::string path;  // begins with "/", or is "*"
  Headers query;     // in order; "a=1&a=2" are two; "+" is a space
};

// "/slots/1?action=save", also behind "http://host". nullopt: neither a path nor "*", an escape that is none, or a NUL.
std::optional<Target> parse_target(std::string_view target);

}  // namespace terrace::serve::http
