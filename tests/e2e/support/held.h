// What a process holds of its system, to be compared with what it held before: descriptors and threads that stay behind
// are a leak that no address sanitizer sees.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/e2e/support/process.h"

namespace terrace::test {

class Held {
 public:
  // Of the process with this number, now. gRPC's own threads and wake-up descriptors are left out: it keeps pools of
  // them, which grow and shrink as it likes.
  static Held by(pid_t process);

  bool has(const std::string& word) const;
  // What this has beyond `before`, a word each ("socket", a file's path, a thread's name); descriptors that were opened
  // again count as the same.
  std::vector<std::string> beyond(const Held& before) const;

 private:
  std::vector<std::string> what_;  // sorted
};

// Waits until the process holds nothing beyond `before`: what ends, ends a little later. Gives what is left.
std::vector<std::string> left_by(pid_t process, const Held& before, std::chrono::milliseconds patience);

}  // namespace terrace::test
