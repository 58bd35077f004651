#include "common/base/service_manager.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace terrace {

ServiceManager::ServiceManager(const Environment& environment)
    : socket_(environment.get("NOTIFY_SOCKET").value_or("")) {}

Status ServiceManager::send(std::string_view message) const {
  if (socket_.empty()) return {};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof address.sun_path)
    return Error(ErrorCode::kIo, fmt::format("NOTIFY_SOCKET {}: the path is too long for a socket", socket_));
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_.front() == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());

  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const ssize_t sent = fd < 0 ? -1
                              : ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                                         reinterpret_cast<const sockaddr*>(&address), size);
  const int failed = errno;
  if (fd >= 0) ::close(fd);
  if (sent == static_cast<ssize_t>(message.size())) return {};
  return Error(ErrorCode::kIo, fmt::format("NOTIFY_SOCKET {}: the service manager was not told {}: {}", socket_,
                                           message, std::generic_category().message(failed)));
}

}  // namespace terrace
