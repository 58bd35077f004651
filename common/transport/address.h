// HOST:PORT as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

struct sockaddr;  // <sys/socket.h>

namespace terrace::transport {

struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 0;
};

// "box1:9000", "127.0.0.1:9000", "[::1]:9000". kInvalidArgument names the address and what is wrong with it. Names are
// not looked up.
Result<HostPort> parse_host_port(std::string_view address);
// The form that parse_host_port() reads.
std::string to_string(const HostPort& address);

// Whether nobody beyond this machine can be meant: 127.0.0.0/8 and ::1. Nothing else is, an IPv4 address in IPv6
// (::ffff:127.0.0.1) neither: what decides where links go without credentials takes no second spelling.
bool is_loopback(const sockaddr& address);

}  // namespace terrace::transport
