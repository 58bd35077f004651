#include "coordinator/app/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/descriptor.h"

namespace terrace::app {
namespace {

Error failed(const char* what) {
  return Error(ErrorCode::kIo, fmt::format("the server on loopback: {}: {}", what, std::strerror(errno)));
}

}  // namespace

Status post_to_loopback(std::uint16_t port, std::string_view path, std::string_view body) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failed("no socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return failed("connecting failed");
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      path, body.size(), body);
  for (std::size_t sent = 0; sent < request.size();) {
    const auto n = ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return failed("sending failed");
    sent += static_cast<std::size_t>(n);
  }
  constexpr std::size_t kHeadKept = 512;
  std::string head;
  std::array<char, 65536> buffer;
  for (;;) {
    const auto n = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (n < 0) return failed("reading failed");
    if (n == 0) break;
    if (head.size() < kHeadKept) head.append(buffer.data(), static_cast<std::size_t>(n));
  }
  head.resize(std::min(head.size(), kHeadKept));
  if (head.starts_with("HTTP/1.1 200 ")) return {};
  return Error(ErrorCode::kInternal, fmt::format("the server on loopback answered {}", head));
}

}  // namespace terrace::app
