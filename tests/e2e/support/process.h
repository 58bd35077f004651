// Programs of ours as child processes: started with arguments, watched with bounded waits, always reaped.
//
// Every child finds its caches below one folder of the test process, and dies with the thread that started it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/common/temp_dir.h"

namespace terrace::test {

// Far more than any step of a test takes on a loaded machine; only a hang reaches it.
inline constexpr std::chrono::seconds kPatience{120};

struct Outcome {
  bool ended = false;      // within the time; all below means nothing otherwise
  int exit_code = -1;      // -1: ended by a signal
  int signal = 0;          // that ended it
  std::string out, err;    // all that it wrote
  std::uint64_t peak = 0;  // bytes: the most memory that was resident at once
};

// Where the caches of children, and of engines in this process, lie.
std::filesystem::path cache_dir();

class Process {
 public:
  // arguments[0] is the program's path. `input` is its standard input, whole. network: as for spawn().
  explicit Process(const std::vector<std::string>& arguments, const std::string& input = "", int network = -1);
  // Ends it by SIGKILL if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  // Nothing when it has ended already.
  void kill(int signal);
  // Its address space no longer grows, nor is what it gives back given again: it meets the end of memory at the first
  // mapping that it asks for, until it is allowed more.
  void refuse_memory();
  void allow_memory();
  // Waits until it has ended, or the time is over.
  Outcome wait(std::chrono::milliseconds timeout = kPatience);
  // What it has written so far.
  std::string out() const { return read_file(dir_ / "out"); }
  std::string err() const { return read_file(dir_ / "err"); }
  // Bytes of a line of /proc/PID/status, such as "VmRSS" or "RssAnon"; 0: it has ended.
  std::uint64_t memory(const std::string& line) const;

 private:
  void reap(bool block);

  TempDir dir_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  Outcome outcome_;
};

// Runs a program to its end.
Outcome run_program(const std::vector<std::string>& arguments, const std::string& input = "",
                    std::chrono::milliseconds timeout = kPatience, int network = -1);
// build/<preset>/bin/terrace with these arguments.
std::vector<std::string> terrace(std::vector<std::string> arguments);

// Asks until it is so; false: not within the time.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds timeout = kPatience);

void pause_briefly();

template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    pause_briefly();
  }
  return true;
}

}  // namespace terrace::test
