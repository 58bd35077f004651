#include "common/base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/base/descriptor.h"

namespace terrace {
namespace {

Error failed(const std::string& name, const char* doing, int reason) {
  if (reason == EISDIR) return Error(ErrorCode::kInvalidArgument, fmt::format("{}: is a directory; give a file", name));
  return Error(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot be {}: {}", name, doing, std::strerror(reason)));
}

}  // namespace

Result<std::string> read_text(int descriptor, const std::string& name, std::size_t max_bytes) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(name, "read", errno);
    if (n == 0) return text;
    if (static_cast<std::size_t>(n) > max_bytes - text.size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: is longer than {} bytes, the most such a file has", name, max_bytes));
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

Result<std::string> read_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (in.get() < 0) return failed(file.string(), "opened", errno);
  return read_text(in.get(), file.string(), max_bytes);
}

}  // namespace terrace
