// Legs and a trunk that note what they do in a trace. Wrapped around the real ones where `--trace` is given, so that
// without it nothing of a step knows of traces.
//
// A leg's track has one span a batch, from the begin of its submit() to the end of its collect(), or to its abandon()
// where it is asked range by range, and these two within it; the track of steps has one span a step. Of two batches
// that are open at once, the later one's span begins where the earlier one's ends, so that spans nest.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/arch/forwarding_trunk.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/routed_experts.h"
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
  std::span<const kernels::SlabView> slabs_on_card() const override { return leg_.slabs_on_card(); }
  void count_on_card(const legs::LegCounters& counted) override { leg_.count_on_card(counted); }
  void add_waits(std::vector<pollfd>& entries) override { leg_.add_waits(entries); }
  const Error* why_out() const override { return leg_.why_out(); }

 private:
  std::shared_ptr<legs::Leg> owned_;  // null: it is borrowed
  legs::Leg& leg_;
  TraceRecorder& recorder_;
  const std::uint32_t track_;
  // Those under way, but audits: they have no span.
  struct Open {
    legs::Ticket ticket = 0;  // 0: none
    TraceSpan batch;
  };
  void end_batch(Open& open, std::int64_t collect_begin, std::uint64_t computed_us);

  std::array<Open, legs::kMostLayersOpen> open_;
  std::int64_t last_end_ = 0;        // of a batch's span
  std::uint64_t computed_seen_ = 0;  // compute_us that ended spans have
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
