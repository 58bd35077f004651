#include "common/transport/address.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

namespace terrace::transport {
namespace {

Error wrong(std::string_view address, const char* what) {
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' {}; an address is HOST:PORT, for example 127.0.0.1:9000 or [::1]:9000", address, what));
}

bool is_host_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}
// Hexadecimal groups, an embedded IPv4 address, and a zone ("%eth0").
bool is_ipv6_character(char c) { return is_host_character(c) || c == ':' || c == '%'; }

}  // namespace

Result<HostPort> parse_host_port(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return wrong(address, "has no port");
  std::string_view host = address.substr(0, colon);
  const std::string_view digits = address.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return wrong(address, "has no host");
  if (!std::all_of(host.begin(), host.end(), bracketed ? is_ipv6_character : is_host_character))
    return wrong(address,
                 bracketed ? "is no IPv6 address in brackets" : "has a host with characters that none may have");
  HostPort result{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (error != std::errc() || end != digits.data() + digits.size())
    return wrong(address, "has a port that is not a number from 0 to 65535");
  return result;
}

std::string to_string(const HostPort& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  if (address.sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace terrace::transport
