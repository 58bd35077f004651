#include "coordinator/serve/trace/traced.h"

#include <algorithm>
#include <utility>

namespace terrace::serve {

Result<legs::Ticket> TracedLeg::submit(const legs::LegBatch& batch) {
  if (batch.form == legs::ReplyForm::kSlots) return leg_.submit(batch);
  const std::int64_t begin = recorder_.now();
  auto ticket = leg_.submit(batch);
  const std::int64_t end = recorder_.now();
  recorder_.record({.kind = TraceSpan::Kind::kSubmit, .track = track_, .begin_ns = begin, .end_ns = end});
  const TraceSpan span = {.kind = TraceSpan::Kind::kBatch,
                          .track = track_,
                          .begin_ns = begin,
                          .end_ns = end,
                          .layer = batch.layer,
                          .rows = batch.n_rows,
                          .pairs = batch.pairs.size()};
  if (!ticket.ok()) {
    recorder_.record(span);  // nobody will collect it
    return ticket;
  }
  const auto free = std::find_if(open_.begin(), open_.end(), [](const Open& open) { return open.ticket == 0; });
  if (free != open_.end()) *free = {*ticket, span};
  return ticket;
}

void TracedLeg::end_batch(Open& open, std::int64_t collect_begin, std::uint64_t computed_us) {
  TraceSpan& batch = open.batch;
  batch.begin_ns = std::max(batch.begin_ns, last_end_);
  batch.end_ns = last_end_ = recorder_.now();
  recorder_.record({.kind = TraceSpan::Kind::kCollect,
                    .track = track_,
                    .begin_ns = std::max(collect_begin, batch.begin_ns),
                    .end_ns = batch.end_ns,
                    .compute_us = computed_us});
  recorder_.record(batch);
  open.ticket = 0;
}

Status TracedLeg::collect(legs::Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const std::uint64_t computed = leg_.counters().compute_us;
  const std::int64_t begin = recorder_.now();
  const Status collected = leg_.collect(ticket, sums, failed);
  for (Open& open : open_)
    if (open.ticket == ticket) end_batch(open, begin, leg_.counters().compute_us - computed);
  return collected;
}

// The end of a batch that was asked for range by range: its answers came beside others, so that collecting has no
// begin of its own, and what the leg says of its computing is known from reply to reply.
void TracedLeg::abandon(legs::Ticket ticket) {
  leg_.abandon(ticket);
  for (Open& open : open_) {
    if (open.ticket != ticket) continue;
    const std::uint64_t computed = leg_.counters().compute_us;
    end_batch(open, open.batch.end_ns, computed - std::min(computed, std::exchange(computed_seen_, computed)));
  }
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
