#include "tests/e2e/support/held.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/test_data.h"

namespace terrace::test {
namespace {

// Threads are named by whoever starts them, or after the one that did.
bool is_grpcs(const std::string& thread) {
  for (const char* name :
       {"grpc", "default-execut", "resolver-execu", "event_engine", "timer_manager", "nexting_thread"})
    if (thread.starts_with(name)) return true;
  return false;
}

// "socket:[4711]" is "socket".
std::string kind_of(const std::string& target) {
  const std::size_t number = target.find(":[");
  return number != std::string::npos && !target.starts_with("anon_inode") ? target.substr(0, number) : target;
}

}  // namespace

Held Held::by(pid_t process) {
  Held held;
  const std::filesystem::path proc = "/proc/" + std::to_string(process);
  std::error_code gone;  // what ends while it is looked at is not held
  for (const auto& entry : std::filesystem::directory_iterator(proc / "fd", gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    // The folder that is being read, and what gRPC's pollers wait at.
    if (target.empty() || target == (proc / "fd").string() || target == "anon_inode:[eventpoll]" ||
        target == "anon_inode:[eventfd]")
      continue;
    held.what_.push_back(kind_of(target));
  }
  for (const auto& entry : std::filesystem::directory_iterator(proc / "task", gone)) {
    std::ifstream comm(entry.path() / "comm");
    std::string name;
    if (std::getline(comm, name) && !is_grpcs(name)) held.what_.push_back("thread " + name);
  }
  std::ranges::sort(held.what_);
  return held;
}

bool Held::has(const std::string& word) const { return std::ranges::binary_search(what_, word); }

std::vector<std::string> Held::beyond(const Held& before) const {
  std::vector<std::string> more;
  std::ranges::set_difference(what_, before.what_, std::back_inserter(more));
  return more;
}

std::vector<std::string> left_by(pid_t process, const Held& before, std::chrono::milliseconds patience) {
  std::vector<std::string> left;
  (void)eventually(
      [&] {
        left = Held::by(process).beyond(before);
        return left.empty();
      },
      patience);
  return left;
}

}  // namespace terrace::test
