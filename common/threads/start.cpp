#include "common/threads/start.h"

#include <fmt/core.h>
#include <pthread.h>

#include <latch>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/check.h"

namespace terrace {
namespace {

constexpr std::size_t kLongestName = 15;  // the kernel's

}  // namespace

Result<std::thread> start_thread(const std::string& name, std::function<void()> body) {
  TERRACE_CHECK(name.size() <= kLongestName, "a thread's name that the kernel does not take");
  try {
    // Each thread names itself: the name of another is a file, which a node that gave its rights up does not open.
    const auto named = std::make_shared<std::latch>(1);
    std::thread thread([name, body = std::move(body), named] {
      pthread_setname_np(pthread_self(), name.c_str());
      named->count_down();
      body();
    });
    named->wait();
    return thread;
  } catch (const std::system_error& thrown) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the thread {} cannot be started: the system gives this process no more ({}); look at the "
                             "user's limit (`ulimit -u`, RLIMIT_NPROC), the unit's TasksMax and the cgroup's pids.max",
                             name, thrown.code().message()));
  }
}

}  // namespace terrace
