// A trunk that notes when its steps began and ended, and what stood in them: what is left of a wall clock is its
// caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/arch/trunk.h"

namespace terrace::app {

struct TimedStep {
  std::chrono::steady_clock::time_point begin, end;
  std::uint32_t decode_rows = 0;  // of streams with one row
  std::uint32_t prompt_rows = 0;  // of streams with several

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  bool is_mixed() const { return decode_rows > 0 && prompt_rows > 0; }
};

// step() as the trunk's; take() may be called by any thread.
class TimedTrunk final : public arch::Trunk {
 public:
  // Borrowed.
  explicit TimedTrunk(arch::Trunk& trunk) : trunk_(trunk) { steps_.reserve(kStepsSetAside); }

  // The steps since the last call.
  std::vector<TimedStep> take();

  const arch::ModelInfo& info() const override { return trunk_.info(); }
  std::size_t max_rows() const override { return trunk_.max_rows(); }
  std::uint32_t context() const override { return trunk_.context(); }
  Result<arch::StreamId> open_stream() override { return trunk_.open_stream(); }
  Result<arch::StreamId> fork_stream(arch::StreamId from, std::uint32_t positions) override {
    return trunk_.fork_stream(from, positions);
  }
  void close_stream(arch::StreamId stream) override { trunk_.close_stream(stream); }
  std::uint32_t length(arch::StreamId stream) const override { return trunk_.length(stream); }
  Result<arch::StepResult> step(std::span<const arch::StepRow> rows) override;
  std::uint64_t last_step() const override { return trunk_.last_step(); }
  std::uint64_t uncertain_since() const override { return trunk_.uncertain_since(); }
  kv::Cache& cache() override { return trunk_.cache(); }
  void set_trace(arch::TraceFn trace) override { trunk_.set_trace(std::move(trace)); }

 private:
  static constexpr std::size_t kStepsSetAside = 4096;

  arch::Trunk& trunk_;
  std::mutex mutex_;
  std::vector<TimedStep> steps_;
};

}  // namespace terrace::app
