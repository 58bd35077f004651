// A regular file, open for reading and mapped whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "common/base/result.h"

namespace terrace::gguf {

// Move-only; the bytes stay where they are when it moves. The mapping is as long as the file was at open: a file that
// another program cuts short later still ends this process with SIGBUS (mapping_fault.h), so replace files by rename.
class MappedFile {
 public:
  // kNotFound, kIo (the system's reason), kInvalidArgument (a folder, a pipe, a device). Errors name the file.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_; }  // for pread; do not close
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_ = -1;
  std::span<const std::byte> bytes_;
};

}  // namespace terrace::gguf
