#include "common/transport/ucx/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "common/base/descriptor.h"

namespace terrace::transport {
namespace {

struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  bool ipv6 = false;
};

std::optional<IpAddress> parse_ip(const std::string& text) {
  IpAddress address;
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
  address.ipv6 = true;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) != 1) return std::nullopt;
  in6_addr v6{};
  std::memcpy(&v6, address.bytes.data(), sizeof(v6));
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return address;
  IpAddress v4;
  std::copy_n(address.bytes.begin() + 12, 4, v4.bytes.begin());
  return v4;
}

// Bit `i` from the front.
bool bit(const std::array<std::uint8_t, 16>& bytes, unsigned i) { return ((bytes[i / 8] >> (7 - i % 8)) & 1) != 0; }

struct FreeList {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// Empty: none that UCX could use.
std::string numeric(const sockaddr* address) {
  if (address == nullptr) return {};
  const bool v6 = address->sa_family == AF_INET6;
  if (!v6 && address->sa_family != AF_INET) return {};
  if (v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)) return {};
  char text[NI_MAXHOST] = {};
  const socklen_t length = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

}  // namespace

Result<Network> Network::parse(const std::string& cidr) {
  const auto refused = [&](const char* why) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" is no network: {}; for example 192.168.7.0/24 or fd00:7::/64", cidr, why));
  };
  const std::size_t slash = cidr.find('/');
  if (slash == std::string::npos) return refused("the length of its prefix is missing");
  const auto address = parse_ip(cidr.substr(0, slash));
  if (!address) return refused("what stands before the slash is no IP address");
  Network network;
  const char* const end = cidr.data() + cidr.size();
  const auto parsed = std::from_chars(cidr.data() + slash + 1, end, network.prefix_);
  const unsigned bits = address->ipv6 ? 128 : 32;
  if (parsed.ec != std::errc() || parsed.ptr != end || network.prefix_ > bits)
    return refused(address->ipv6 ? "its prefix is no number from 0 to 128" : "its prefix is no number from 0 to 32");
  network.text_ = cidr;
  network.bytes_ = address->bytes;
  network.ipv6_ = address->ipv6;
  for (unsigned i = network.prefix_; i < bits; ++i)
    if (bit(network.bytes_, i)) return refused("it has bits beyond its prefix");
  return network;
}

bool Network::contains(const std::string& text) const {
  const auto address = parse_ip(text);
  if (!address || address->ipv6 != ipv6_) return false;
  for (unsigned i = 0; i < prefix_; ++i)
    if (bit(address->bytes, i) != bit(bytes_, i)) return false;
  return true;
}

bool is_loopback(const std::string& text) {
  const auto address = parse_ip(text);
  if (!address) return false;
  if (!address->ipv6) return address->bytes[0] == 127;
  in6_addr v6{};
  std::memcpy(&v6, address->bytes.data(), sizeof(v6));
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<Interface> find_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    return Error(ErrorCode::kIo, fmt::format("the network interfaces cannot be listed: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, FreeList> list(first);
  Interface found;
  bool known = false;
  std::vector<std::string> names;
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    if (std::find(names.begin(), names.end(), each->ifa_name) == names.end()) names.emplace_back(each->ifa_name);
    if (name != each->ifa_name) continue;
    known = true;
    found.loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    if (std::string address = numeric(each->ifa_addr); !address.empty()) found.addresses.push_back(std::move(address));
  }
  if (!known)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no network interface \"{}\", but {}", name, fmt::join(names, ", ")));
  return found;
}

Result<UcxPorts> parse_ucx_ports(const std::string& text) {
  UcxPorts ports;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ports.first);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-') {
    const auto last = std::from_chars(first.ptr + 1, end, ports.last);
    if (last.ec == std::errc() && last.ptr == end && ports.first >= 1024 &&
        ports.last - ports.first + 1 >= static_cast<int>(kFewestUcxPorts))
      return ports;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("\"{}\" is no range of at least {} ports from 1024 on; for example 9200-9455", text,
                           kFewestUcxPorts));
}

Status check_free_port(const UcxPorts& ports) {
  for (unsigned port = ports.first; port <= ports.last; ++port) {
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) return Error(ErrorCode::kIo, fmt::format("no socket for UCX: {}", std::strerror(errno)));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return {};
  }
  return Error(ErrorCode::kIo, fmt::format("no port from {} to {} is free for UCX; give it others with --ucx-ports",
                                           ports.first, ports.last));
}

}  // namespace terrace::transport
