// Legs and a trunk that note what they do in a trace. Wrapped around the real ones where `--trace` is given, so that
// without it nothing of a step knows of traces.
//
// A leg's track has one span a batch, from the begin of its submit() to the end of its collect(), or to its abandon()
// where it is asked range by range, and these two within it; the track of steps has one span a step. The dispatcher has
// one batch a leg open at a time, so spans nest.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/arch/forwarding_trunk.h"
#include "coordinator/legs/leg.h"
#include "coordinator/serve/trace/recorder.h"

namespace terrace::serve {

class TracedLeg final : public legs::Leg {
 public:
  // The recorder is borrowed. track: 1 + the leg's place.
  TracedLeg(std::shared_ptr<legs::Leg> leg, TraceRecorder& recorder, std::uint32_t track)
      : owned_(std::move(leg)), leg_(*owned_), recorder_(recorder), track_(track) {}
  // The leg is borrowed too.
  TracedLeg(legs::Leg& leg, TraceRecorder& recorder, std::uint32_t track)
      : leg_(leg), recorder_(recorder), track_(track) {}

  const std::string& name() const override { return leg_.name(); }
  legs::LegKind kind() const override { return leg_.kind(); }
  legs::LegState state() const override { return leg_.state(); }
  std::uint64_t experts() const override { return leg_.experts(); }
  Result<legs::Ticket> submit(const legs::LegBatch& batch) override;
  Status collect(legs::Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  void progress() override { leg_.progress(); }
  legs::LegCounters counters() const override { return leg_.counters(); }

  bool by_range() const override { return leg_.by_range(); }
  legs::RangeState range_state(legs::Ticket ticket, std::size_t range) const override {
    return leg_.range_state(ticket, range);
  }
  Status take(legs::Ticket ticket, std::size_t range, kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    return leg_.take(ticket, range, sums, failed);
  }
  void take_slots(legs::Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) override {
    leg_.take_slots(ticket, slots, failed);
  }
  void put_out(legs::LegState state, const Error& why) override { leg_.put_out(state, why); }
  Status ticket_status(legs::Ticket ticket) const override { return leg_.ticket_status(ticket); }
  legs::StepClock::TimePoint soft_limit(legs::Ticket ticket) const override { return leg_.soft_limit(ticket); }
  void set_suspect(legs::Ticket ticket) override { leg_.set_suspect(ticket); }
  void abandon(legs::Ticket ticket) override;
  void retire() override { leg_.retire(); }
  void add_waits(std::vector<pollfd>& entries) override { leg_.add_waits(entries); }
  const Error* why_out() const override { return leg_.why_out(); }

 private:
  std::shared_ptr<legs::Leg> owned_;  // null: it is borrowed
  legs::Leg& leg_;
  TraceRecorder& recorder_;
  const std::uint32_t track_;
  TraceSpan batch_;                    // the open one
  legs::Ticket ticket_ = 0;            // of it; audits have others, and no span
  std::uint64_t computed_before_ = 0;  // compute_us when it was submitted
};

class TracedTrunk final : public arch::ForwardingTrunk {
 public:
  // Both are borrowed.
  TracedTrunk(arch::Trunk& trunk, TraceRecorder& recorder) : ForwardingTrunk(trunk), recorder_(recorder) {}

  Result<arch::StepResult> step(std::span<const arch::StepRow> rows) override;

 private:
  TraceRecorder& recorder_;
};

}  // namespace terrace::serve
