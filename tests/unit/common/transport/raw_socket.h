// A blocking socket that knows nothing of frames.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace terrace::transport::test {

class RawSocket {
 public:
  RawSocket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  RawSocket(const RawSocket&) = delete;
  ~RawSocket() { end(); }

  int fd() const { return fd_; }
  bool connect(std::uint16_t port) {
    const sockaddr_in address = loopback(port);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  // Listens with the shortest queue there is; returns the port.
  std::uint16_t listen() {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 0), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    return ntohs(address.sin_port);
  }
  void write(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // The same, where the other end may have closed: false then.
  bool try_write(std::span<const std::byte> bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Whether bytes, or the end, have come within `time`. Nothing is read.
  bool answered_within(std::chrono::milliseconds time) {
    pollfd entry{fd_, POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(time.count())) > 0;
  }
  // Fills `out`. False: the end, or not so much in time.
  bool read(std::span<std::byte> out, std::chrono::milliseconds time) {
    while (!out.empty()) {
      if (!answered_within(time)) return false;
      const ssize_t bytes = ::recv(fd_, out.data(), out.size(), 0);
      if (bytes <= 0) return false;
      out = out.subspan(static_cast<std::size_t>(bytes));
    }
    return true;
  }
  // Reads what comes until the other end closes. False: it did not in time.
  bool closed_within(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    for (std::array<std::byte, 4096> dropped;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd entry{fd_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
      if (::recv(fd_, dropped.data(), dropped.size(), 0) <= 0) return true;
    }
  }
  void end() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Ends with a reset instead of a goodbye.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    end();
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int fd_;
};

}  // namespace terrace::transport::test
