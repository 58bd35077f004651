// The slots and the steps: what runs together, which rows each step takes, who makes room when memory is short. What
// scheduler.h says of steps, reuse, sequences, memory and errors is done here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "coordinator/serve/scheduler/leg_steps.h"
#include "coordinator/serve/scheduler/row_shares.h"
#include "coordinator/serve/scheduler/run.h"
#include "coordinator/serve/scheduler/scheduler.h"
#include "coordinator/serve/scheduler/sequences.h"
#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve {

// Streams of the trunk beside one for each slot: a sequence that a new stream is forked from, and one that is being
// saved or restored.
inline constexpr std::uint32_t kSpareStreams = 2;

// One owner thread, the trunk's. Listeners are called from here.
class Batcher {
 public:
  // parts and options as Scheduler::make() checked them.
  Batcher(const SchedulerParts& parts, const SchedulerOptions& options);
  // Nothing runs any more; sequences are forgotten.
  ~Batcher();

  // ---- requests -------------------------------------------------------------------------------------------------
  bool busy() const { return n_running_ > 0; }
  // Whether its slot, or any, is free and nobody waits for memory.
  bool can_start(const Job& job) const;
  void start(std::unique_ptr<Job> job);
  // Ends a request that runs; another id is ignored.
  void end(RequestId id, EndReason reason);
  void end_all(EndReason reason);
  // Decides what the next step computes. False: nothing. Then comes the step, and nothing between them but describe().
  bool plan_step();
  void take_step();
  // Requests that have ended since the last call.
  std::span<const RequestId> take_ended();

  // ---- what it tells --------------------------------------------------------------------------------------------
  // Overwrites what it knows of; where `status` has been written before, nothing is allocated but for an error's text.
  void describe(SchedulerStatus& status) const;

  // ---- slots' sequences -----------------------------------------------------------------------------------------
  // A stream of its own that holds what the slot holds now; the caller closes it. kNotFound.
  Result<Sequence> snapshot(std::uint32_t slot);
  // A stream with room for so many positions, to be filled. kOutOfMemory: not even without the resting sequences.
  Result<arch::StreamId> make_room_for(std::uint32_t positions);
  // The stream, filled, becomes the slot's sequence. kBusy: the slot runs a request. kOutOfMemory: beyond
  // resting_bytes. On error the stream is closed.
  Status adopt(std::uint32_t slot, Sequence sequence);
  void close(arch::StreamId stream) { trunk_.close_stream(stream); }
  // Closes a snapshot. False: what it held has proved not to be certain since.
  bool close_snapshot(const Sequence& sequence);
  // kBusy. How many tokens were forgotten.
  Result<std::uint32_t> erase(std::uint32_t slot);

 private:
  struct Slot {
    std::unique_ptr<Run> run;              // null: idle
    std::optional<arch::StreamId> stream;  // empty: waits for a prefix or for memory
    bool preempted = false;                // it had a stream and gave it back
    std::uint64_t age = 0;                 // the oldest run has the least
    std::uint64_t last_used = 0;
    std::uint32_t first_row = 0, n_rows = 0;  // of the step
    bool wants_logits = false;                // of its last row
  };
  // Where a prompt's beginning is stored.
  struct Source {
    std::optional<std::size_t> resting;  // index, or else a running slot's:
    arch::StreamId stream = 0;
    std::uint32_t common = 0;
  };

  std::uint32_t index_of(const Slot& slot) const { return static_cast<std::uint32_t>(&slot - slots_.data()); }
  std::uint32_t stored(const Slot& slot) const { return slot.stream ? trunk_.length(*slot.stream) : 0; }
  Slot* free_slot_for(const Job& job);
  Slot* best_free_slot(std::span<const std::int32_t> prompt);

  void sort_by_age();
  void give_streams();
  std::optional<Source> find_source(const Slot& slot) const;
  bool waits_for_prefix(const Slot& slot, std::uint32_t have) const;
  void give_stream(Slot& slot);
  void plan_rows();
  void add_rows(Slot& slot);
  Result<arch::StepResult> run_rows();
  bool make_room();
  void preempt(Slot& slot);
  void take_results(const arch::StepResult& result, Clock::time_point begin, Clock::time_point end);
  void fail_rows(const arch::StepResult& result);
  void choose_tokens(const arch::StepResult& result);
  void take_token(Slot& slot, Clock::time_point now);
  void fail_step(const Error& error);
  void roll_back(const Error& why);
  std::size_t ended_since(std::uint64_t step) const;
  void finish(Slot& slot, EndReason reason);
  void fail(Slot& slot, const Error& error, bool keep);
  void release(Slot& slot, bool keep);
  void count_step(Clock::time_point begin, Clock::time_point end);

  arch::Trunk& trunk_;
  Parallel& parallel_;
  RunParts run_parts_;
  std::vector<sampler::SamplerMemory> sampler_memory_;  // [workers]: set aside once, so that a request costs none
  std::uint32_t chunk_rows_;
  bool keeps_;  // sequences for reuse
  std::vector<Slot> slots_;
  RestingSequences resting_;
  std::uint32_t n_snapshots_ = 0;
  std::optional<std::uint64_t> uncertain_;  // since which step, where that was found while there was a snapshot
  std::uint32_t n_running_ = 0;
  std::uint32_t n_preempted_ = 0;
  bool room_again_ = false;  // a stream has ended since one was preempted, and no one has taken its room yet
  std::uint64_t next_age_ = 1;
  std::vector<RequestId> ended_, taken_;
  std::array<std::uint64_t, 1024> last_steps_{};  // of the replies that ended last, in no order
  std::size_t n_last_steps_ = 0;                  // that were ever put there
  std::function<void(const Error&, std::size_t)> on_roll_back_, on_step_failed_;
  std::function<void()> before_telling_, after_telling_;

  // Of the step; kept for their memory.
  std::vector<Slot*> by_age_;  // those that run
  std::vector<PromptRows> prompts_;
  std::vector<arch::StepRow> rows_;
  struct Choice {
    Slot* slot = nullptr;
    std::size_t logits = 0;  // index
  };
  std::vector<Choice> choices_;
  std::uint32_t n_decoding_ = 0;     // streams that lack one row
  std::uint32_t n_prompt_rows_ = 0;  // what was computed once and is again included

  SchedulerStatus told_;  // counters and histograms of it
  LegSteps leg_steps_;
};

}  // namespace terrace::serve
