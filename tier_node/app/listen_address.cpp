#include "tier_node/app/listen_address.h"

#include <fmt/core.h>
#include <netdb.h>

#include <charconv>
#include <memory>

#include "common/transport/address.h"

namespace terrace::node {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::string numeric_host(const addrinfo& address) {
  char text[NI_MAXHOST] = {};
  getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return address.ai_family == AF_INET6 ? fmt::format("[{}]", text) : text;
}

Error bad_form(const std::string& flag, const std::string& text) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} \"{}\" is not HOST:PORT; for example 127.0.0.1:9000 or [::1]:9000", flag, text));
}

using FoundAddresses = std::unique_ptr<addrinfo, FreeAddresses>;

// All that the host stands for; `port`: of the text.
Result<FoundAddresses> look_up(const std::string& flag, const std::string& text, std::uint16_t* port) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad_form(flag, text);
  std::string host = text.substr(0, colon);
  const std::string port_text = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad_form(flag, text);
  }
  const auto parsed = std::from_chars(port_text.data(), port_text.data() + port_text.size(), *port);
  if (port_text.empty() || parsed.ec != std::errc() || parsed.ptr != port_text.data() + port_text.size())
    return bad_form(flag, text);

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &list))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} {}: the host is unknown: {}", flag, text, gai_strerror(failed)));
  return FoundAddresses(list);
}

}  // namespace

Result<ListenAddress> resolve_address(const std::string& flag, const std::string& text) {
  ListenAddress address;
  TERRACE_ASSIGN_OR_RETURN(const FoundAddresses found, look_up(flag, text, &address.port));
  address.host = numeric_host(*found);
  return address;
}

Result<ListenAddress> resolve_loopback(const std::string& flag, const std::string& text, const std::string& why) {
  ListenAddress address;
  TERRACE_ASSIGN_OR_RETURN(const FoundAddresses found, look_up(flag, text, &address.port));
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next)
    if (!transport::is_loopback(*each->ai_addr))
      return Error(ErrorCode::kRefused,
                   fmt::format("{} {}: {} is not loopback, and {}", flag, text, numeric_host(*each), why));
  address.host = numeric_host(*found);
  return address;
}

}  // namespace terrace::node
