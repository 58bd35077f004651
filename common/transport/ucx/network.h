// Where UCX may be: a range of IP addresses, a network interface and its addresses, a range of ports.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace terrace::transport {

class Network {
 public:
  // "192.168.7.0/24", "fd00:7::/64". kInvalidArgument: anything else, bits beyond the prefix among them.
  static Result<Network> parse(const std::string& cidr);

  // `address` is numeric, without brackets; an IPv4 address written as IPv6 counts as what it is. Of another family, or
  // no address: false.
  bool contains(const std::string& address) const;
  bool is_ipv6() const { return ipv6_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::array<std::uint8_t, 16> bytes_{};  // 4 of them for IPv4
  unsigned prefix_ = 0;                   // bits
  bool ipv6_ = false;
};

bool is_loopback(const std::string& address);

struct Interface {
  bool loopback = false;
  std::vector<std::string> addresses;  // numeric, without brackets; link-local ones of IPv6 left out
};
// kInvalidArgument: there is no interface of this name; the names that there are stand in the message.
Result<Interface> find_interface(const std::string& name);

struct UcxPorts {
  std::uint16_t first = 9200;
  std::uint16_t last = 9455;
};
// UCX tries ports of the range at random, and again and again where none is free: so it must not be met by accident.
inline constexpr unsigned kFewestUcxPorts = 16;
// "9200-9455". kInvalidArgument: not that, a port below 1024, or fewer than kFewestUcxPorts.
Result<UcxPorts> parse_ucx_ports(const std::string& text);
// kIo: none of them is free now.
Status check_free_port(const UcxPorts& ports);

}  // namespace terrace::transport
