#include "coordinator/legs/runtime.h"

#include <utility>

#include "common/threads/start.h"

namespace terrace::legs {
namespace {

class SystemRuntime final : public Runtime {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }
  Result<std::thread> start(const std::string& name, std::function<void()> body) override {
    return start_thread(name, std::move(body));
  }
  void join(std::thread& thread) override { thread.join(); }
  void notify(std::condition_variable& changed) override { changed.notify_all(); }
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint until) override {
    if (until == TimePoint::max())
      changed.wait(lock);
    else
      changed.wait_until(lock, until);
  }
  void wait_for_change(LegBoard& board, std::uint64_t seen, std::chrono::milliseconds most) override {
    (void)board.wait_for_change(seen, most);
  }
};

}  // namespace

Runtime& system_runtime() {
  static SystemRuntime runtime;
  return runtime;
}

}  // namespace terrace::legs
