#include "common/gguf/mapping_fault.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace::gguf {
namespace {

// All below runs in a signal handler, on a thread that may hold any lock: system calls and memory on the stack alone.

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Takes hexadecimal digits from the front of `text`.
std::uintptr_t take_hex(std::string_view& text) {
  std::uintptr_t value = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c >= '0' && c <= '9')
      value = value * 16 + static_cast<std::uintptr_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value * 16 + static_cast<std::uintptr_t>(c - 'a') + 10;
    else
      break;
  }
  return value;
}

// A line of /proc/self/maps is "BEGIN-END rights offset device inode   /path".
bool is_of(std::string_view line, std::uintptr_t address) {
  const std::uintptr_t begin = take_hex(line);
  if (line.empty()) return false;
  line.remove_prefix(1);
  return begin <= address && address < take_hex(line);
}

// Lines longer than `line` are cut: a path has at most 4,095 bytes, and what stands before it 100.
// False: nothing said, the address is of no file, or it cannot be told of which.
bool say_file_at(std::uintptr_t address) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  std::array<char, 512> piece;
  std::array<char, 4352> line;
  std::size_t length = 0;
  for (ssize_t got; (got = ::read(maps, piece.data(), piece.size())) > 0;)
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      if (piece[i] != '\n') {
        if (length < line.size()) line[length++] = piece[i];
        continue;
      }
      const std::string_view whole(line.data(), length);
      length = 0;
      const std::size_t path = whole.find('/');
      if (path == std::string_view::npos || !is_of(whole, address)) continue;
      say(whole.substr(path));
      return true;
    }
  return false;
}

// Workers read one tensor side by side: the first that fails says so, and the others wait for the end.
void on_bus_error(int, siginfo_t* info, void*) {
  static std::atomic_flag taken;
  while (taken.test_and_set()) ::pause();
  if (say_file_at(reinterpret_cast<std::uintptr_t>(info->si_addr)))
    say(": cannot be read any more where it is mapped: it was cut short, or its disk fails; replace model files by "
        "rename\n");
  else
    say("a bus error outside of mapped files\n");
  ::signal(SIGBUS, SIG_DFL);
  ::raise(SIGBUS);  // blocked here: comes when this returns
}

}  // namespace

void explain_mapping_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace terrace::gguf
