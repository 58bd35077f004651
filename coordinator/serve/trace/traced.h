// Legs and a trunk that note what they do in a trace. Wrapped around the real ones where `--trace` is given, so that
// without it nothing of a step knows of traces.
//
// A leg's track has one span a batch, from the begin of its submit() to the end of its collect(), and these two within
// it; the track of steps has one span a step. The dispatcher has one batch a leg open at a time, so spans nest.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coordinator/arch/trunk.h"
#include "coordinator/legs/leg.h"
#include "coordinator/serve/trace/recorder.h"

namespace terrace::serve {

class TracedLeg final : public legs::Leg {
 public:
  // Both are borrowed. track: 1 + the leg's place.
  TracedLeg(legs::Leg& leg, TraceRecorder& recorder, std::uint32_t track)
      : leg_(leg), recorder_(recorder), track_(track) {}

  const std::string& name() const override { return leg_.name(); }
  legs::LegKind kind() const override { return leg_.kind(); }
  legs::LegState state() const override { return leg_.state(); }
  std::uint64_t experts() const override { return leg_.experts(); }
  Result<legs::Ticket> submit(const legs::LegBatch& batch) override;
  Status collect(legs::Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  void put_out(const Error& why) override { leg_.put_out(why); }
  // An audit's: beside the leg's own batch, and no span.
  Status collect_slots(legs::Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) override {
    return leg_.collect_slots(ticket, slots, failed);
  }
  void progress() override { leg_.progress(); }
  legs::LegCounters counters() const override { return leg_.counters(); }

 private:
  legs::Leg& leg_;
  TraceRecorder& recorder_;
  const std::uint32_t track_;
  TraceSpan batch_;  // the open one
};

class TracedTrunk final : public arch::Trunk {
 public:
  // Both are borrowed.
  TracedTrunk(arch::Trunk& trunk, TraceRecorder& recorder) : trunk_(trunk), recorder_(recorder) {}

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
  arch::Trunk& trunk_;
  TraceRecorder& recorder_;
};

}  // namespace terrace::serve
