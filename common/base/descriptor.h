// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace terrace {

class Descriptor {
 public:
  // Owns `fd` from now on; negative: there is none, as system calls say it.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  // The caller's from now on.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace terrace
