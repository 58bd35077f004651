#include "tests/e2e/support/terminal_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "tests/e2e/support/spawn.h"

namespace terrace::test {

TerminalProcess::TerminalProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& variables) {
  terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 64> name{};
  if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0 ||
      ::ptsname_r(terminal_, name.data(), name.size()) != 0)
    throw std::runtime_error("no pseudo-terminal");
  const int side = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const winsize size{24, 80, 0, 0};
  ::ioctl(side, TIOCSWINSZ, &size);
  std::vector<std::string> all = {"TERM=xterm"};
  all.insert(all.end(), variables.begin(), variables.end());
  const int fds[] = {side, side, side};
  pid_ = spawn(arguments, fds, all, true);
  ::close(side);
  ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
}

TerminalProcess::~TerminalProcess() {
  if (!reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(terminal_);
}

void TerminalProcess::type(const std::string& keys) {
  looked_at_ = shown().size();
  if (::write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("the terminal takes no keys");
}

const std::string& TerminalProcess::shown() {
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(terminal_, buffer.data(), buffer.size())) > 0;)
    shown_.append(buffer.data(), static_cast<std::size_t>(n));
  return shown_;
}

std::string TerminalProcess::wait_for(const std::string& text) {
  std::size_t at = std::string::npos;
  const bool came = eventually([&] {
    const bool ended = !running();
    at = shown().find(text, looked_at_);
    return at != std::string::npos || ended;
  });
  const std::size_t begin = looked_at_;
  if (!came || at == std::string::npos) {
    ADD_FAILURE() << "\"" << text << "\" was not shown:\n" << shown_.substr(begin);
    return "";
  }
  looked_at_ = at + text.size();
  return shown_.substr(begin, looked_at_ - begin);
}

bool TerminalProcess::running() {
  if (reaped_) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) {
    reaped_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  return !reaped_;
}

int TerminalProcess::wait() {
  // What the program says is read meanwhile: a full terminal would hold it up.
  eventually([this] {
    shown();
    return !running();
  });
  shown();
  return exit_code_;
}

std::string without_escapes(const std::string& shown) {
  std::string text;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (shown[i] == '\r') continue;
    if (shown[i] != '\x1b') {
      text += shown[i];
      continue;
    }
    if (i + 1 < shown.size() && shown[i + 1] == '[') {
      for (i += 2; i < shown.size() && (shown[i] < '@' || shown[i] > '~');) ++i;
    } else {
      ++i;
    }
  }
  return text;
}

}  // namespace terrace::test
