#include "coordinator/terminal/input_history.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/descriptor.h"
#include "common/base/utf8.h"

namespace terrace::terminal {
namespace {

constexpr off_t kMostBytes = off_t{4} << 20;  // read of the file: its end

Descriptor open_file(const std::filesystem::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

Error failed(const std::filesystem::path& file, const char* what) {
  return Error(ErrorCode::kIo,
               fmt::format("{}: cannot be {}: {}", file.string(), what, std::generic_category().message(errno)));
}

// One line, fit to be shown and edited.
std::string clean(std::string_view line) {
  std::string text = replace_bad_utf8(line);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

Result<std::string> read_end(int fd, off_t size, const std::filesystem::path& file) {
  const off_t begin = std::max<off_t>(0, size - kMostBytes);
  std::string bytes(static_cast<std::size_t>(size - begin), '\0');
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + got, bytes.size() - got, begin + static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(file, "read");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  bytes.resize(got);
  if (begin > 0) bytes.erase(0, std::min(bytes.find('\n'), bytes.size() - 1) + 1);  // half a line
  return bytes;
}

std::vector<std::string> split(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    if (end > 0) lines.push_back(clean(bytes.substr(0, end)));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return lines;
}

Status write_all(int fd, std::string_view bytes, const std::filesystem::path& file) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(file, "written");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status replace(const std::filesystem::path& file, const std::vector<std::string>& lines) {
  std::filesystem::path fresh = file;
  fresh += fmt::format(".{}", getpid());
  {
    const Descriptor out = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    if (out.get() < 0) return failed(fresh, "written");
    std::string bytes;
    for (const std::string& line : lines) bytes += line + '\n';
    TERRACE_RETURN_IF_ERROR(write_all(out.get(), bytes, fresh));
  }
  return ::rename(fresh.c_str(), file.c_str()) == 0 ? Status() : failed(file, "written");
}

}  // namespace

std::filesystem::path state_file(const Environment& environment, const std::string& name) {
  const auto absolute = [&](const char* variable) -> std::optional<std::filesystem::path> {
    const auto value = environment.get(variable);
    return value && std::filesystem::path(*value).is_absolute() ? std::optional<std::filesystem::path>(*value)
                                                                : std::nullopt;
  };
  if (const auto state = absolute("XDG_STATE_HOME")) return *state / "terrace" / name;
  if (const auto home = absolute("HOME")) return *home / ".local" / "state" / "terrace" / name;
  return {};
}

Result<InputHistory> InputHistory::open(const std::filesystem::path& file) {
  InputHistory history;
  history.file_ = file;
  const Descriptor in = open_file(file, O_RDONLY | O_NONBLOCK);
  if (in.get() < 0 && errno == ENOENT) return history;
  if (in.get() < 0) return failed(file, "read");
  struct stat status {};
  if (::fstat(in.get(), &status) != 0) return failed(file, "read");
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: is no regular file", file.string()));
  if ((status.st_mode & 0077) != 0 && ::fchmod(in.get(), 0600) != 0) return failed(file, "made private");
  TERRACE_ASSIGN_OR_RETURN(const std::string bytes, read_end(in.get(), status.st_size, file));
  history.lines_ = split(bytes);
  const bool long_file = history.lines_.size() > 2 * kMostLines || status.st_size > kMostBytes;
  if (history.lines_.size() > kMostLines)
    history.lines_.erase(history.lines_.begin(), history.lines_.end() - static_cast<std::ptrdiff_t>(kMostLines));
  if (long_file) TERRACE_RETURN_IF_ERROR(replace(file, history.lines_));
  return history;
}

Status InputHistory::add(std::string_view line) {
  std::string text = clean(line);
  if (text.empty() || (!lines_.empty() && lines_.back() == text)) return {};
  lines_.push_back(text);
  if (file_.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  const Descriptor out = open_file(file_, O_WRONLY | O_CREAT | O_APPEND);
  if (out.get() < 0) return failed(file_, "written");
  return write_all(out.get(), text + '\n', file_);
}

}  // namespace terrace::terminal
