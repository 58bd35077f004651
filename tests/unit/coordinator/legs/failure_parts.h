// Pieces for tests of what happens when a leg fails, without threads and without waiting: a clock that a test moves, a
// leg that answers range by range at the times it is told to, a backstop that reads from memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/legs/backstop.h"
#include "coordinator/legs/leg.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs::test {

// Time goes by only while somebody waits, and by a microsecond with each look.
class ManualClock final : public StepClock {
 public:
  TimePoint now() override { return now_ += std::chrono::microseconds(1); }
  void wait(std::span<pollfd>, TimePoint until) override {
    ++waits;
    now_ = std::max(now_, until);
  }
  std::size_t waits = 0;

 private:
  TimePoint now_{std::chrono::hours(1)};
};

// The experts of a TestModel as a file that can fail.
class MemoryReader final : public SlabReader {
 public:
  explicit MemoryReader(const TestModel& model) : model_(model) {
    for (const auto& layer : model.layers) slot_bytes_ = std::max(slot_bytes_, aligned(layer.shape.slab_bytes()));
  }
  std::size_t slot_bytes() const override { return slot_bytes_; }
  const std::string& describe() const override { return describe_; }
  Result<kernels::SlabView> read(std::uint32_t layer, std::uint16_t expert, std::span<std::byte> slot) override {
    ++reads;
    if (on_read) on_read();
    if (broken) return Error(ErrorCode::kIo, "model.gguf: tensor blk.1.ffn_up_exps.weight: cannot read at offset 7");
    const kernels::ExpertShape& shape = model_.layers[layer].shape;
    const kernels::SlabView from = model_.layers[layer].experts[expert].view();
    const auto copy = [&](const std::byte* part, std::size_t bytes) {
      std::memcpy(slot.data(), part, bytes);
      const std::byte* at = slot.data();
      slot = slot.subspan(bytes);
      return at;
    };
    kernels::SlabView view;
    view.gate = copy(from.gate, shape.gate_bytes());
    view.up = copy(from.up, shape.up_bytes());
    view.down = copy(from.down, shape.down_bytes());
    return view;
  }

  std::function<void()> on_read;  // a disk takes its time
  std::atomic<bool> broken = false;
  std::atomic<std::size_t> reads = 0;

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes / kAlignment + 1) * kAlignment; }

  const TestModel& model_;
  std::size_t slot_bytes_ = 0;
  std::string describe_ = "memory";
};

struct TestBackstop {
  // in_memory: BackstopParts::in_memory.
  TestBackstop(const TestModel& model, Parallel& parallel, bool read_ahead = false,
               std::function<std::optional<kernels::SlabView>(std::uint32_t, std::uint16_t)> in_memory = {}) {
    auto owned = std::make_unique<MemoryReader>(model);
    reader = owned.get();
    auto opened = Backstop::open({.reader = std::move(owned),
                                  .kernels = model.kernels,
                                  .n_experts = kExperts,
                                  .top_k = kTopK,
                                  .parallel = parallel,
                                  .ops = model.ops,
                                  .in_memory = std::move(in_memory),
                                  .read_ahead = read_ahead});
    TERRACE_CHECK(opened.ok(), "a backstop opens");
    backstop = std::move(*opened);
  }
  MemoryReader* reader;
  std::unique_ptr<Backstop> backstop;
};

// Answers range by range, at times of the clock, with the right sums.
class ScriptedLeg final : public Leg {
 public:
  using Duration = StepClock::Duration;
  static constexpr Duration kNever = std::chrono::hours(100);

  ScriptedLeg(std::string name, const TestModel& model, StepClock& clock)
      : name_(std::move(name)), model_(model), clock_(clock) {}

  // What the batches to come will meet.
  Duration answer_after{std::chrono::microseconds(100)};
  std::map<std::size_t, Duration> range_after{};  // instead, of single ranges
  Duration lost_after = kNever;                   // from submit() on
  Duration soft = std::chrono::milliseconds(10);
  bool refuse_batch = false;
  bool lose_at_submit = false;
  LegState out_as = LegState::kLost;
  std::string* events = nullptr;  // gets an "s" for each submit(), a "t" for each take()
  // What they were.
  std::vector<std::uint64_t> epochs;
  // Tickets that somebody still waits for.
  std::size_t n_open() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(open_, [](const auto& entry) { return !entry.second.abandoned; }));
  }

  const std::string& name() const override { return name_; }
  LegKind kind() const override { return LegKind::kNode; }
  LegState state() const override { return state_; }
  std::uint64_t experts() const override { return 0; }
  LegCounters counters() const override { return counters_; }
  bool by_range() const override { return true; }

  Result<Ticket> submit(const LegBatch& batch) override {
    if (events != nullptr) *events += 's';
    if (lose_at_submit) put_out();
    if (out_) return *out_;
    EXPECT_NE(batch.rows_owner, nullptr) << "a leg that is given up may still send rows";
    epochs.push_back(batch.epoch);
    counters_.pairs += batch.pairs.size();
    Open& open = open_[++last_];
    open.batch = batch;
    open.pairs.assign(batch.pairs.begin(), batch.pairs.end());
    open.ranges.assign(batch.ranges.begin(), batch.ranges.end());
    open.submitted = clock_.now();
    open.lost_at = open.submitted + lost_after;
    for (std::size_t i = 0; i < batch.ranges.size(); ++i) {
      const auto own = range_after.find(i);
      open.due.push_back(open.submitted + (own != range_after.end() ? own->second : answer_after));
      open.state.push_back(RangeState::kOpen);
    }
    if (refuse_batch) open.refused = Error(ErrorCode::kStaleEpoch, name_ + ": epoch 7 was forgotten");
    return last_;
  }
  Status collect(Ticket, kernels::SumsView, std::span<std::uint8_t>) override {
    TERRACE_CHECK(false, "a leg by range is not collected whole");
    return {};
  }
  void progress() override {
    const auto now = clock_.now();
    for (auto& [ticket, open] : open_) {
      if (now >= open.lost_at) put_out();
      if (out_ || open.refused) continue;
      for (std::size_t i = 0; i < open.due.size(); ++i)
        if (open.state[i] == RangeState::kOpen && now >= open.due[i]) {
          open.state[i] = RangeState::kReady;
          if (state_ == LegState::kSuspect) state_ = LegState::kOk;
        }
    }
    std::erase_if(open_, [](const auto& entry) {
      const Open& open = entry.second;
      return open.abandoned && std::ranges::count(open.state, RangeState::kOpen) == 0;
    });
  }
  RangeState range_state(Ticket ticket, std::size_t range) const override { return open_.at(ticket).state.at(range); }
  Status take(Ticket ticket, std::size_t range, kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    if (events != nullptr) *events += 't';
    Open& open = open_.at(ticket);
    EXPECT_EQ(open.state.at(range), RangeState::kReady);
    std::vector<kernels::Pair> pairs;
    for (const kernels::Pair& pair : open.pairs)
      if (pair.row >= open.ranges[range].first && pair.row < open.ranges[range].first + open.ranges[range].count)
        pairs.push_back(pair);
    LegBatch part = open.batch;
    part.pairs = pairs;
    const Sums own = local_sums(model_, part);
    for (std::size_t i = 0; i < own.values.size(); ++i) sums.data[i] += own.values[i];
    for (std::size_t i = 0; i < own.failed.size(); ++i) failed[i] |= own.failed[i];
    open.state[range] = RangeState::kClosed;
    return {};
  }
  Status ticket_status(Ticket ticket) const override {
    if (out_) return *out_;
    if (open_.at(ticket).refused) return *open_.at(ticket).refused;
    return {};
  }
  StepClock::TimePoint soft_limit(Ticket ticket) const override { return open_.at(ticket).submitted + soft; }
  void set_suspect(Ticket) override { state_ = LegState::kSuspect; }
  void abandon(Ticket ticket) override {
    Open& open = open_.at(ticket);
    EXPECT_FALSE(open.abandoned) << "twice";
    open.abandoned = true;
    open.batch.rows_owner = nullptr;
    if (out_ || open.refused) open_.erase(ticket);
  }
  void retire() override { retired = true; }
  const Error* why_out() const override { return out_ ? &*out_ : nullptr; }

  bool retired = false;

 private:
  struct Open {
    LegBatch batch;
    std::vector<kernels::Pair> pairs;
    std::vector<RowRange> ranges;
    StepClock::TimePoint submitted, lost_at;
    std::vector<StepClock::TimePoint> due;
    std::vector<RangeState> state;
    std::optional<Error> refused;
    bool abandoned = false;
  };
  void put_out() {
    if (out_) return;
    state_ = out_as;
    out_ = Error(ErrorCode::kPeerGone, name_ + ": the node is lost");
  }

  const std::string name_;
  const TestModel& model_;
  StepClock& clock_;
  LegState state_ = LegState::kOk;
  std::optional<Error> out_;
  std::map<Ticket, Open> open_;
  Ticket last_ = 0;
  LegCounters counters_;
};

}  // namespace terrace::legs::test
