#include "tests/e2e/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <thread>

#include "tests/e2e/support/spawn.h"
#include "tests/test_data.h"

namespace terrace::test {
namespace {

int open_or_throw(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) throw std::runtime_error("cannot open " + path.string());
  return fd;
}

// The soft limit of the address space alone: whoever lowered it may raise it again.
void set_memory_limit(pid_t pid, bool is_none) {
  rlimit limit{};
  bool done = ::prlimit(pid, RLIMIT_AS, nullptr, &limit) == 0;
  limit.rlim_cur = is_none ? limit.rlim_max : 0;
  done = done && ::prlimit(pid, RLIMIT_AS, &limit, nullptr) == 0;
  if (!done) throw std::runtime_error("no limit of memory was set");
}

}  // namespace

std::filesystem::path cache_dir() {
  static const TempDir dir;
  return dir.path();
}

Process::Process(const std::vector<std::string>& arguments, const std::string& input, int network) {
  write_file(dir_ / "in", input);
  const int fds[] = {open_or_throw(dir_ / "in", O_RDONLY), open_or_throw(dir_ / "out", O_WRONLY | O_CREAT | O_APPEND),
                     open_or_throw(dir_ / "err", O_WRONLY | O_CREAT | O_APPEND)};
  pid_ = spawn(arguments, fds, {}, false, network);
  for (const int fd : fds) ::close(fd);
}

Process::~Process() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  reap(true);
}

void Process::reap(bool block) {
  if (reaped_) return;
  int status = 0;
  rusage used{};
  pid_t ended = 0;
  do ended = ::wait4(pid_, &status, block ? 0 : WNOHANG, &used);
  while (ended < 0 && errno == EINTR);
  if (ended != pid_) return;
  reaped_ = true;
  outcome_.ended = true;
  if (WIFEXITED(status))
    outcome_.exit_code = WEXITSTATUS(status);
  else
    outcome_.signal = WTERMSIG(status);
  outcome_.peak = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
}

bool Process::running() {
  reap(false);
  return !reaped_;
}

void Process::kill(int signal) {
  if (running()) ::kill(pid_, signal);
}

void Process::refuse_memory() { set_memory_limit(pid_, false); }

void Process::allow_memory() { set_memory_limit(pid_, true); }

Outcome Process::wait(std::chrono::milliseconds timeout) {
  eventually([this] { return !running(); }, timeout);
  outcome_.out = out();
  outcome_.err = err();
  return outcome_;
}

std::uint64_t Process::memory(const std::string& line) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  std::string name;
  std::uint64_t kib = 0;
  while (status >> name)
    if (name == line + ":") {
      status >> kib;
      break;
    }
  return kib * 1024;
}

Outcome run_program(const std::vector<std::string>& arguments, const std::string& input,
                    std::chrono::milliseconds timeout, int network) {
  Process process(arguments, input, network);
  return process.wait(timeout);
}

std::vector<std::string> terrace(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), (binary_dir() / "terrace").string());
  return arguments;
}

void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

}  // namespace terrace::test
