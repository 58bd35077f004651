// A trunk that notes when its steps began and ended, and what stood in them: what is left of a wall clock is its
// caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/arch/forwarding_trunk.h"

namespace terrace::app {

struct TimedStep {
  std::chrono::steady_clock::time_point begin, end;
  std::uint32_t decode_rows = 0;  // of streams with one row
  std::uint32_t prompt_rows = 0;  // of streams with several

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  bool is_mixed() const { return decode_rows > 0 && prompt_rows > 0; }
};

// step() as the trunk's; take() may be called by any thread.
class TimedTrunk final : public arch::ForwardingTrunk {
 public:
  // Borrowed.
  explicit TimedTrunk(arch::Trunk& trunk) : ForwardingTrunk(trunk) { steps_.reserve(kStepsSetAside); }

  // The steps since the last call.
  std::vector<TimedStep> take();

  Result<arch::StepResult> step(std::span<const arch::StepRow> rows) override;

 private:
  static constexpr std::size_t kStepsSetAside = 4096;

  std::mutex mutex_;
  std::vector<TimedStep> steps_;
};

}  // namespace terrace::app
