#include "common/security/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/descriptor.h"

namespace terrace::security {
namespace {

Error failed(const std::filesystem::path& file, int reason) {
  return Error(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot be read: {}", file.string(), std::strerror(reason)));
}

Status require_private(const std::filesystem::path& file, const struct stat& facts) {
  const bool handed_over = facts.st_uid == 0 && ::geteuid() != 0;
  const mode_t forbidden = handed_over ? S_IWGRP | S_IRWXO : S_IRWXG | S_IRWXO;
  if ((facts.st_mode & forbidden & ~static_cast<mode_t>(S_IXGRP | S_IXOTH)) == 0) return {};
  return Error(ErrorCode::kRefused, fmt::format("{}: others may read or write this file (mode {:04o}), so it keeps no "
                                                "secret; make it yours alone: chmod 600 {}",
                                                file.string(), facts.st_mode & 07777, file.string()));
}

Result<std::string> read_file(const std::filesystem::path& file, std::size_t max_bytes, bool is_private) {
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return failed(file, errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return failed(file, errno);
  if (!S_ISREG(facts.st_mode)) return Error(ErrorCode::kRefused, fmt::format("{}: is no regular file", file.string()));
  if (is_private) TERRACE_RETURN_IF_ERROR(require_private(file, facts));
  std::string text(max_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(file, errno);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > max_bytes) {
    wipe(text);
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: is longer than {} bytes, the most such a file has", file.string(), max_bytes));
  }
  text.resize(size);
  return text;
}

}  // namespace

void wipe(std::string& text) {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

Result<std::string> read_private_file(const std::filesystem::path& file, std::size_t max_bytes) {
  return read_file(file, max_bytes, true);
}
Result<std::string> read_public_file(const std::filesystem::path& file, std::size_t max_bytes) {
  return read_file(file, max_bytes, false);
}

}  // namespace terrace::security
