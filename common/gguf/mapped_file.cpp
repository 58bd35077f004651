#include "common/gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace terrace::gguf {
namespace {

Error system_error(const std::filesystem::path& path, const char* doing) {
  const int reason = errno;
  const auto code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error(code,
               fmt::format("{}: cannot {} it: {}", path.string(), doing, std::generic_category().message(reason)));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path, "open");
  MappedFile file(path, fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error(path, "look at");
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: not a regular file", path.string()));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return file;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return system_error(path, "map");
  file.bytes_ = {static_cast<const std::byte*>(address), size};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace terrace::gguf
