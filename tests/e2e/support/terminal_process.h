// A program of ours on a terminal: what a person types and sees.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/e2e/support/process.h"

namespace terrace::test {

// The terminal has 24 rows of 80 columns and calls itself xterm. Everything is bounded by kPatience.
class TerminalProcess {
 public:
  explicit TerminalProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {});
  ~TerminalProcess();  // ends the program by SIGKILL if it still runs
  TerminalProcess(const TerminalProcess&) = delete;
  TerminalProcess& operator=(const TerminalProcess&) = delete;

  pid_t pid() const { return pid_; }
  void type(const std::string& keys);
  // All that was shown so far, escape sequences and all; "\r\n" at a line's end.
  const std::string& shown();
  // What was shown behind the last wait_for() or type(), once it holds `text`: up to the end of that. The test fails
  // when it does not come.
  std::string wait_for(const std::string& text);
  // Whether the program still runs.
  bool running();
  // Waits for its end; the exit code, or -1 where it does not end or a signal ended it.
  int wait();

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  bool reaped_ = false;
  int exit_code_ = -1;
  std::string shown_;
  std::size_t looked_at_ = 0;
};

// The text without escape sequences and carriage returns.
std::string without_escapes(const std::string& shown);

}  // namespace terrace::test
