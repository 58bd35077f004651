#include "tests/e2e/support/spawn.h"

#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <stdexcept>
#include <string_view>

#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

std::vector<std::string> child_environment(const std::vector<std::string>& more) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    if (!variable.starts_with("XDG_CACHE_HOME=") && !variable.starts_with("TERRACE_")) variables.emplace_back(variable);
  }
  variables.push_back("XDG_CACHE_HOME=" + cache_dir().string());
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& string : strings) all.push_back(string.data());
  all.push_back(nullptr);
  return all;
}

// Between fork and exec of a process with threads: nothing but system calls.
[[noreturn]] void become(const char* program, char** arguments, char** environment, const int (&fds)[3], pid_t parent,
                         bool controlling_terminal, int network) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(127);
  if (controlling_terminal) {
    ::setsid();
    ::ioctl(fds[0], TIOCSCTTY, 0);
  }
  for (int i = 0; i < 3; ++i) ::dup2(fds[i], i);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, arguments, environment);
  ::_exit(127);
}

}  // namespace

pid_t spawn(std::vector<std::string> arguments, const int (&fds)[3], const std::vector<std::string>& variables,
            bool controlling_terminal, int network) {
  std::vector<std::string> environment = child_environment(variables);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0)
    become(argv[0], const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), fds, parent, controlling_terminal,
           network);
  if (pid < 0) throw std::runtime_error("cannot fork");
  return pid;
}

}  // namespace terrace::test
