#include "common/base/console.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace terrace {
namespace {

// A stream that came through exec() is open and not marked to be closed by it. If it is marked, a library that opens
// files before main() was given a number that the caller had left free.
bool is_inherited(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return flags != -1 && (flags & FD_CLOEXEC) == 0;
}

// `mode` is the wrong way round, so that using the stream stays an error. Its number is the lowest free one: the
// missing stream's. glibc lets the three be assigned; freopen() would close what a library holds.
void replace_missing(int fd, std::FILE*& stream, const char* mode) {
  if (is_inherited(fd)) return;
  if (std::FILE* failing = std::fopen("/dev/null", mode)) stream = failing;
}

}  // namespace

void prepare_standard_streams() {
  signal(SIGPIPE, SIG_IGN);
  replace_missing(STDIN_FILENO, stdin, "we");
  replace_missing(STDOUT_FILENO, stdout, "re");
  replace_missing(STDERR_FILENO, stderr, "re");
}

bool stdout_is_written() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace terrace
