#include "coordinator/serve/trace/traced.h"

namespace terrace::serve {

Result<legs::Ticket> TracedLeg::submit(const legs::LegBatch& batch) {
  if (batch.form == legs::ReplyForm::kSlots) return leg_.submit(batch);
  const std::int64_t begin = recorder_.now();
  computed_before_ = leg_.counters().compute_us;
  auto ticket = leg_.submit(batch);
  const std::int64_t end = recorder_.now();
  recorder_.record({.kind = TraceSpan::Kind::kSubmit, .track = track_, .begin_ns = begin, .end_ns = end});
  batch_ = {.kind = TraceSpan::Kind::kBatch,
            .track = track_,
            .begin_ns = begin,
            .end_ns = end,
            .layer = batch.layer,
            .rows = batch.n_rows,
            .pairs = batch.pairs.size()};
  if (!ticket.ok()) recorder_.record(batch_);  // nobody will collect it
  if (ticket.ok()) ticket_ = *ticket;
  return ticket;
}

Status TracedLeg::collect(legs::Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const std::uint64_t computed = leg_.counters().compute_us;
  const std::int64_t begin = recorder_.now();
  const Status collected = leg_.collect(ticket, sums, failed);
  batch_.end_ns = recorder_.now();
  recorder_.record({.kind = TraceSpan::Kind::kCollect,
                    .track = track_,
                    .begin_ns = begin,
                    .end_ns = batch_.end_ns,
                    .compute_us = leg_.counters().compute_us - computed});
  recorder_.record(batch_);
  return collected;
}

// The end of a batch that was asked for range by range: its answers came beside others, so that collecting has no
// begin of its own.
void TracedLeg::abandon(legs::Ticket ticket) {
  leg_.abandon(ticket);
  if (ticket != ticket_) return;
  const std::int64_t begin = batch_.end_ns;  // of submit()
  batch_.end_ns = recorder_.now();
  recorder_.record({.kind = TraceSpan::Kind::kCollect,
                    .track = track_,
                    .begin_ns = begin,
                    .end_ns = batch_.end_ns,
                    .compute_us = leg_.counters().compute_us - computed_before_});
  recorder_.record(batch_);
}

Result<arch::StepResult> TracedTrunk::step(std::span<const arch::StepRow> rows) {
  const std::int64_t begin = recorder_.now();
  auto result = trunk_.step(rows);
  recorder_.record({.kind = TraceSpan::Kind::kStep,
                    .track = TraceRecorder::kStepTrack,
                    .begin_ns = begin,
                    .end_ns = recorder_.now(),
                    .rows = static_cast<std::uint32_t>(rows.size())});
  return result;
}

}  // namespace terrace::serve
