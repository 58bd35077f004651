#include "common/gguf/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/gguf/bytes.h"

namespace terrace::gguf {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;  // pieces at least as large go past the buffer

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, std::filesystem::path partial, int fd)
    : path_(std::move(path)), partial_(std::move(partial)), fd_(fd) {}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  std::error_code ignored;
  if (const auto there = std::filesystem::status(path, ignored);
      std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: is no regular file and is not replaced", path.string()));
  // A name of its own: two processes that write the same file must not write into one another's.
  std::string partial = path.string() + ".partial.XXXXXX";
  const int fd = ::mkostemp(partial.data(), O_CLOEXEC);
  OutputFile file(path, partial, fd);
  if (fd < 0 || ::fchmod(fd, 0644) != 0) return file.system_error("create");
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      flushed_(other.flushed_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  std::swap(buffer_, other.buffer_);
  std::swap(flushed_, other.flushed_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_.c_str());
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.append(as_text(bytes));
    return {};
  }
  TERRACE_RETURN_IF_ERROR(flush());
  if (bytes.size() >= kBufferBytes) return write_through(bytes);
  buffer_.append(as_text(bytes));
  return {};
}

Status OutputFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("write");
    flushed_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status OutputFile::flush() {
  TERRACE_RETURN_IF_ERROR(write_through(as_bytes(buffer_)));
  buffer_.clear();
  return {};
}

// Some file systems report a failed write only at close, so that is looked at too. No fsync: what a power cut leaves
// under the name is found cut by its reader, and syncing would bind the pace to the disk's.
Status OutputFile::commit() {
  TERRACE_RETURN_IF_ERROR(flush());
  if (::close(std::exchange(fd_, -1)) != 0) {
    const Error error = system_error("close");
    ::unlink(partial_.c_str());
    return error;
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    const Error error = system_error("rename");
    ::unlink(partial_.c_str());
    return error;
  }
  return {};
}

Error OutputFile::system_error(const char* doing) const {
  return Error(ErrorCode::kIo, fmt::format("{}: cannot {} it after {} bytes: {}", partial_.string(), doing, flushed_,
                                           std::generic_category().message(errno)));
}

}  // namespace terrace::gguf
