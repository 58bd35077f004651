#include "coordinator/serve/metrics/metrics.h"

#include <algorithm>
#include <string>
#include <utility>

namespace terrace::serve {
namespace {

using metrics::Family;
using metrics::Kind;
using metrics::Labels;
using metrics::Sample;

// Collects families; each function adds one.
class Families {
 public:
  template <class Number>
  void counter(const char* name, const char* help, Number value) {
    add(name, Kind::kCounter, help, {number(value)});
  }
  template <class Number>
  void gauge(const char* name, const char* help, Number value) {
    add(name, Kind::kGauge, help, {number(value)});
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    add(name, Kind::kHistogram, help, {sample_of(histogram)});
  }
  void add(const char* name, Kind kind, const char* help, std::vector<Sample> samples) {
    families_.push_back({name, kind, help, std::move(samples)});
  }

  template <class Number>
  static Sample number(Number value, Labels labels = {}) {
    return {static_cast<double>(value), std::move(labels), {}};
  }
  static Sample sample_of(const Histogram& histogram, Labels labels = {}) {
    metrics::HistogramCounts counts;
    for (std::size_t i = 0; i < Histogram::kBounds; ++i) counts.bounds.push_back(histogram.bound(i));
    counts.counts.assign(histogram.counts().begin(), histogram.counts().end());
    counts.sum = histogram.sum();
    return {0, std::move(labels), std::move(counts)};
  }
  std::vector<Family> take() { return std::move(families_); }

 private:
  std::vector<Family> families_;
};

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

std::uint64_t busy_slots(const SchedulerStatus& status) {
  return static_cast<std::uint64_t>(std::count_if(
      status.slots.begin(), status.slots.end(), [](const SlotStatus& slot) { return slot.state != SlotState::kIdle; }));
}

void add_requests(const SchedulerStatus& status, Families& out) {
  const Counters& c = status.counters;
  out.counter("terrace_requests_total", "Requests that were taken into the queue.", c.requests);
  out.counter("terrace_requests_refused_total", "Requests that a full queue refused.", c.requests_refused);
  out.add("terrace_requests_ended_total", Kind::kCounter, "Requests that are over, by how they ended.",
          {Families::number(c.requests_ended, {{"outcome", "complete"}}),
           Families::number(c.requests_cancelled, {{"outcome", "cancelled"}}),
           Families::number(c.requests_failed, {{"outcome", "failed"}})});
  out.gauge("terrace_requests_queued", "Requests that wait for a slot.", status.queued);
  out.gauge("terrace_queue_limit", "Requests that may wait; further ones are refused.", status.queue_limit);
  std::vector<Sample> slots;
  for (const SlotState state : {SlotState::kIdle, SlotState::kWaiting, SlotState::kPrompt, SlotState::kDecoding})
    slots.push_back(Families::number(
        std::count_if(status.slots.begin(), status.slots.end(), [&](const SlotStatus& s) { return s.state == state; }),
        {{"state", name(state)}}));
  out.add("terrace_slots", Kind::kGauge, "Slots by what they do.", std::move(slots));
}

void add_tokens(const SchedulerStatus& status, Families& out) {
  const Counters& c = status.counters;
  out.add("terrace_prompt_tokens_total", Kind::kCounter, "Prompt tokens, computed or taken over from a kept prefix.",
          {Families::number(c.prompt_tokens, {{"source", "computed"}}),
           Families::number(c.prompt_tokens_cached, {{"source", "cached"}})});
  out.counter("terrace_tokens_total", "Tokens made.", c.tokens);
  out.histogram("terrace_first_token_seconds", "From a request's arrival to its first token.",
                status.first_token_seconds);
  out.histogram("terrace_token_seconds", "Between two tokens of a stream.", status.token_seconds);
  out.histogram("terrace_queue_seconds", "From a request's arrival to its slot.", status.queue_seconds);
}

void add_steps(const SchedulerStatus& status, Families& out) {
  const Counters& c = status.counters;
  out.counter("terrace_steps_failed_total", "Steps that failed whole, by a leg's error for instance.", c.steps_failed);
  out.gauge("terrace_step_error", "1 while the last step failed, else 0.", status.step_error.has_value());
  out.histogram("terrace_step_seconds", "Time of a step.", status.step_seconds);
  out.histogram("terrace_mixed_step_seconds", "Time of a step with prompt rows beside decoding streams.",
                status.mixed_step_seconds);
  out.histogram("terrace_step_rows", "Rows of a step: one of each decoding stream, and those of prompts.",
                status.rows_per_step);
  out.counter("terrace_prompt_step_seconds_total", "Time of steps with rows of prompts.", c.prompt_seconds);
  out.counter("terrace_decode_step_seconds_total", "Time of steps without rows of prompts.", c.decode_seconds);
}

void add_cache(const SchedulerStatus& status, Families& out) {
  const std::uint64_t resting = std::min(status.cache_bytes_resting, status.cache_bytes);
  out.add("terrace_cache_bytes", Kind::kGauge, "Keys and values in memory: of running streams, or kept for reuse.",
          {Families::number(status.cache_bytes - resting, {{"state", "running"}}),
           Families::number(resting, {{"state", "resting"}})});
  out.gauge("terrace_cache_budget_bytes", "What keys and values may take; 0: what the machine gives.",
            status.cache_budget);
  out.gauge("terrace_resting_sequences", "Ended sequences that are kept for reuse.", status.resting_sequences);
  out.counter("terrace_evictions_total", "Kept sequences that made room.", status.counters.evictions);
  out.counter("terrace_roll_backs_total", "Steps after which streams computed again what a wrong node had a part in.",
              status.counters.roll_backs);
  out.counter("terrace_preemptions_total", "Streams that gave their memory back and were computed again.",
              status.counters.preemptions);
}

void add_leg_states(const SchedulerStatus& status, Families& out) {
  std::vector<Sample> samples;
  for (const LegStatus& leg : status.legs)
    for (const legs::LegState state :
         {legs::LegState::kOk, legs::LegState::kSuspect, legs::LegState::kLost, legs::LegState::kWrong})
      samples.push_back(Families::number(
          leg.state == state, {{"leg", leg.name}, {"kind", legs::name(leg.kind)}, {"state", legs::name(state)}}));
  out.add("terrace_leg_state", Kind::kGauge, "1 for the state that the leg is in, 0 for the others.",
          std::move(samples));
}

void add_leg_steps(const SchedulerStatus& status, Families& out) {
  std::vector<Sample> wait, compute;
  for (const LegStatus& leg : status.legs) {
    const Labels labels = {{"leg", leg.name}, {"kind", legs::name(leg.kind)}};
    wait.push_back(Families::sample_of(leg.steps.wait_seconds, labels));
    compute.push_back(Families::sample_of(leg.steps.compute_seconds, labels));
  }
  out.add("terrace_leg_step_wait_seconds", Kind::kHistogram,
          "What a step waited for the leg, of steps that gave it a batch.", std::move(wait));
  out.add("terrace_leg_step_compute_seconds", Kind::kHistogram,
          "Time of a step in the leg's own kernels, of steps that gave it a batch.", std::move(compute));
}

// One family a count, one sample a leg.
void add_legs(const SchedulerStatus& status, Families& out) {
  const auto family = [&](const char* name, Kind kind, const char* help, auto&& value) {
    std::vector<Sample> samples;
    for (const LegStatus& leg : status.legs)
      samples.push_back(Families::number(value(leg), {{"leg", leg.name}, {"kind", legs::name(leg.kind)}}));
    out.add(name, kind, help, std::move(samples));
  };
  const auto count = [&](const char* name, const char* help, std::uint64_t legs::LegCounters::*field) {
    family(name, Kind::kCounter, help, [field](const LegStatus& leg) { return leg.counters.*field; });
  };
  const auto seconds = [&](const char* name, const char* help, std::uint64_t legs::LegCounters::*field) {
    family(name, Kind::kCounter, help,
           [field](const LegStatus& leg) { return static_cast<double>(leg.counters.*field) * 1e-6; });
  };
  family("terrace_leg_up", Kind::kGauge, "1 while the leg is asked to compute, 0 while it is lost or wrong.",
         [](const LegStatus& leg) { return !legs::is_out(leg.state); });
  add_leg_states(status, out);
  add_leg_steps(status, out);
  family("terrace_leg_experts", Kind::kGauge, "Experts that the leg owns, over all layers.",
         [](const LegStatus& leg) { return leg.experts; });
  count("terrace_leg_batches_total", "Batches, one a layer and step: round trips of a node.",
        &legs::LegCounters::batches);
  count("terrace_leg_rows_total", "Rows that had a pair on the leg, per batch.", &legs::LegCounters::rows);
  count("terrace_leg_pairs_total", "Pairs of row and expert that the leg computed.", &legs::LegCounters::pairs);
  count("terrace_leg_sent_bytes_total", "Frames sent to the leg, without weights.", &legs::LegCounters::bytes_sent);
  count("terrace_leg_received_bytes_total", "Frames received from the leg.", &legs::LegCounters::bytes_received);
  count("terrace_leg_weight_sent_bytes_total", "Experts sent to the leg.", &legs::LegCounters::weight_bytes_sent);
  seconds("terrace_leg_wait_seconds_total", "What steps waited for the leg's replies.", &legs::LegCounters::wait_us);
  seconds("terrace_leg_compute_seconds_total", "Time in the leg's own kernels.", &legs::LegCounters::compute_us);
  seconds("terrace_leg_round_trip_seconds_total", "Of a node: from a batch's submission until its last reply was seen.",
          &legs::LegCounters::round_trip_us);
  count("terrace_leg_losses_total", "Times that the leg was lost.", &legs::LegCounters::losses);
  count("terrace_leg_wrongs_total", "Times that the leg gave other bits or what was not asked.",
        &legs::LegCounters::wrongs);
  count("terrace_leg_rejoins_total", "Times that the leg came back.", &legs::LegCounters::rejoins);
  count("terrace_leg_late_batches_total", "Batches past their soft limit.", &legs::LegCounters::late);
  count("terrace_leg_skipped_batches_total", "Batches that were not sent: the leg was suspect or out.",
        &legs::LegCounters::skipped);
  count("terrace_leg_refused_batches_total", "Batches that the leg answered by an error.", &legs::LegCounters::refused);
  count("terrace_leg_hedges_total", "Late batches that were computed here too.", &legs::LegCounters::hedges);
  count("terrace_leg_false_hedges_total", "Of them, those that the leg still answered first.",
        &legs::LegCounters::false_hedges);
  count("terrace_leg_hedged_pairs_total", "Pairs of the leg that were computed here instead.",
        &legs::LegCounters::hedged_pairs);
  count("terrace_leg_backstop_read_bytes_total", "Read from our own file for them.",
        &legs::LegCounters::backstop_bytes);
  seconds("terrace_leg_backstop_seconds_total", "Time of reading and computing them.", &legs::LegCounters::backstop_us);
  count("terrace_leg_audited_pairs_total", "Pairs of the leg that were computed here too and compared.",
        &legs::LegCounters::audited_pairs);
}

// Names and types as llama-server has them (tools/server/README.md there). Its rates are those between two scrapes of
// its own counters; ours are since the start.
void add_llama_names(const SchedulerStatus& status, Families& out) {
  const Counters& c = status.counters;
  out.counter("llamacpp:prompt_tokens_total", "Prompt tokens computed.", c.prompt_tokens);
  out.counter("llamacpp:prompt_seconds_total", "Time of steps with rows of prompts.", c.prompt_seconds);
  out.counter("llamacpp:tokens_predicted_total", "Tokens made.", c.tokens);
  out.counter("llamacpp:tokens_predicted_seconds_total", "Time of steps without rows of prompts.", c.decode_seconds);
  out.counter("llamacpp:n_decode_total", "Steps.", c.steps);
  out.counter("llamacpp:n_tokens_max", "Longest sequence so far.", c.longest_tokens);
  out.counter("llamacpp:n_busy_slots_per_decode", "Busy slots of a step, the mean of all.",
              ratio(static_cast<double>(c.busy_slots), static_cast<double>(c.steps)));
  out.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second, the mean since the start.",
            ratio(static_cast<double>(c.prompt_tokens), c.prompt_seconds));
  out.gauge("llamacpp:predicted_tokens_seconds", "Tokens made a second, the mean since the start.",
            ratio(static_cast<double>(c.tokens), c.decode_seconds));
  out.gauge("llamacpp:requests_processing", "Busy slots.", busy_slots(status));
  out.gauge("llamacpp:requests_deferred", "Requests that wait for a slot.", status.queued);
}

}  // namespace

std::vector<Family> scheduler_families(const SchedulerStatus& status) {
  Families out;
  add_requests(status, out);
  add_tokens(status, out);
  add_steps(status, out);
  add_cache(status, out);
  add_legs(status, out);
  add_llama_names(status, out);
  return out.take();
}

}  // namespace terrace::serve
