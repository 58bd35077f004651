// Where a node may listen: without credentials on loopback and nowhere else.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace terrace::node {

struct ListenAddress {
  std::string host;  // numeric, IPv6 in brackets
  std::uint16_t port = 0;

  std::string with_port(std::uint16_t other) const { return host + ":" + std::to_string(other); }
};

// `text` is HOST:PORT, the value of `flag` ("--listen", for messages). The host is resolved, and the first of its
// addresses taken. kInvalidArgument: no HOST:PORT, an unknown host.
Result<ListenAddress> resolve_address(const std::string& flag, const std::string& text);
// The same; the host must be loopback in every address it stands for. kRefused: it is not; `why` says what it would
// need.
Result<ListenAddress> resolve_loopback(const std::string& flag, const std::string& text, const std::string& why);

}  // namespace terrace::node
