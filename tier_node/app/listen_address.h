// Where a node may listen. Without credentials that is loopback and nothing else.
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

// `text` is HOST:PORT, the value of `flag` ("--listen", for messages); the host is resolved and must be loopback in
// every address it stands for, of which the first is taken. kInvalidArgument: no HOST:PORT, an unknown host. kRefused:
// beyond loopback.
Result<ListenAddress> resolve_loopback(const std::string& flag, const std::string& text);

}  // namespace terrace::node
