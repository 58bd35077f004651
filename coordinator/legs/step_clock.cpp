#include "coordinator/legs/step_clock.h"

#include <algorithm>

namespace terrace::legs {
namespace {

class SteadyClock final : public StepClock {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }

  void wait(std::span<pollfd> entries, TimePoint until) override {
    const auto left = std::max(std::chrono::nanoseconds(until - now()), std::chrono::nanoseconds(0));
    const timespec spec{static_cast<time_t>(left.count() / 1'000'000'000),
                        static_cast<long>(left.count() % 1'000'000'000)};
    (void)::ppoll(entries.data(), entries.size(), &spec, nullptr);
  }
};

}  // namespace

StepClock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace terrace::legs
