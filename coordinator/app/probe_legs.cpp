#include "coordinator/app/probe_legs.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "coordinator/app/median.h"
#include "coordinator/app/probe_timing.h"

namespace terrace::app {
namespace {

using planner::kCostRows;

constexpr std::uint32_t kSlicePairs = 512;         // of the executor: a batch of so many pairs is one slice
constexpr std::uint32_t kDecodePairs = 16;         // of one row: what is more than usual tells nothing new
constexpr std::chrono::seconds kLongestBatch{30};  // of a node that is alive
constexpr std::uint64_t kWeightsBytes = std::uint64_t{8} << 20;
constexpr Repeats kWireRepeats{.least = 9, .most = 600, .time = std::chrono::duration<double>(0.15)};
constexpr Repeats kLayerRepeats{.least = 3, .most = 400, .time = std::chrono::duration<double>(0.3)};

using Pair2 = std::array<double, 2>;

double micro(std::uint64_t us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

struct ProbeLegs::Batch {
  legs::LegBatch batch;
  std::vector<kernels::Pair> pairs;
  std::vector<legs::RowRange> ranges;
};

ProbeLegs::ProbeLegs(const ProbeModel& model, Pool& pool, const kernels::Ops& ops,
                     const legs::NodeSessionOptions& options, double trunk_between)
    : model_(model),
      pool_(pool),
      options_(options),
      host_(std::make_unique<legs::HostLeg>(model.owners(), model.session_model().lookup, model.kernels(), pool, ops)),
      top_k_(model.session_model().manifest.top_k),
      trunk_between_(trunk_between) {}

ProbeLegs::~ProbeLegs() = default;

Result<std::unique_ptr<ProbeLegs>> ProbeLegs::open(const ProbeModel& model, Pool& pool, const kernels::Ops& ops,
                                                   transport::Transport& transport,
                                                   std::vector<std::unique_ptr<legs::NodeControl>> controls,
                                                   const legs::NodeSessionOptions& options, double trunk_between) {
  std::unique_ptr<ProbeLegs> probe(new ProbeLegs(model, pool, ops, options, trunk_between));
  legs::NodeSessionOptions session = options;
  session.probe = true;
  session.batch_timeout = session.stall_timeout = kLongestBatch;
  for (std::size_t i = 0; i < controls.size(); ++i) {
    TERRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<legs::NodeSession> node,
        legs::NodeSession::open(std::move(controls[i]), transport, model.session_model(), session));
    TERRACE_RETURN_IF_ERROR(node->take_share(model.owners(), i + 1, [](const legs::ShareProgress&) {}));
    probe->nodes_.push_back(std::move(node));
  }
  std::vector<legs::Leg*> legs;
  for (std::size_t i = 0; i < probe->n_legs(); ++i) legs.push_back(&probe->leg(i));
  probe->next_.assign(legs.size(), 0);
  probe->host_->set_meanwhile([p = probe.get()] {
    for (const auto& node : p->nodes_) node->leg().progress();
  });
  probe->dispatcher_ =
      std::make_unique<legs::Dispatcher>(model.owners(), std::move(legs), model.kernels(), probe->top_k_, pool, ops);
  return probe;
}

Status ProbeLegs::check_time(std::size_t i) {
  if (seconds_since(began_) < std::chrono::duration<double>(kTimeLimit).count()) return {};
  return Error(
      ErrorCode::kDeadline,
      fmt::format("{}: measuring is not done after {} s, with this leg in turn; leave out nodes that are slow, "
                  "lower --batch, or probe fewer at one time",
                  leg(i).name(), kTimeLimit.count()));
}

// Layers of a decode step have the trunk between them: meanwhile this machine's threads compute, while a node's have
// gone to sleep, and its processors and links with them. Batches one upon the other find all awake and are too fast.
void ProbeLegs::keep_pace(std::uint32_t rows) {
  if (rows != 1) return;
  const auto end = std::chrono::steady_clock::now() + trunk_between_;
  pool_.run(pool_.n_workers(), [&](std::size_t, std::size_t) {
    while (std::chrono::steady_clock::now() < end) {
    }
  });
}

// Of a batch: experts follow each other, so that no cache has seen those of a row lately which would be in memory alone
// in a run. Where the probe has as many as the run, a row takes some from anywhere, as the run's rows do: what of them
// a cache keeps then, it keeps in the run.
void ProbeLegs::choose_first(std::size_t leg, std::uint32_t rows) {
  if (rows == 1 && model_.has_whole_share(leg)) next_[leg] = static_cast<std::uint32_t>(random_() % model_.count(leg));
}

ProbeLegs::Batch ProbeLegs::make_batch(std::size_t leg, std::size_t kind, std::uint32_t rows, std::uint32_t experts) {
  Batch made;
  choose_first(leg, rows);
  const std::uint32_t n = model_.count(leg);
  std::vector<std::uint16_t> ids;
  for (std::uint32_t i = 0; i < experts; ++i)
    ids.push_back(static_cast<std::uint16_t>(model_.first(leg) + (next_[leg] + i) % n));
  next_[leg] = (next_[leg] + experts) % n;
  std::sort(ids.begin(), ids.end());
  for (const std::uint16_t id : ids)
    for (std::uint32_t row = 0; row < rows; ++row)
      made.pairs.push_back({static_cast<std::uint16_t>(row), id, model_.weight(kind)});
  for (std::uint32_t first = 0; first < rows; first += options_.range_rows)
    made.ranges.push_back({first, std::min(options_.range_rows, rows - first)});
  made.batch.epoch = 1;
  made.batch.layer = static_cast<std::uint32_t>(kind);
  made.batch.gate_rows = model_.rows(model_.kernels()[kind].gate_class());
  made.batch.up_rows = model_.rows(model_.kernels()[kind].up_class());
  made.batch.n_rows = rows;
  made.batch.priority = rows == 1 ? legs::Priority::kDecode : legs::Priority::kPrompt;
  sums_.assign(std::size_t{rows} * model_.shape(kind).d_model, 0);
  failed_.assign(rows, 0);
  return made;
}

Result<ProbeLegs::Time> ProbeLegs::run(std::size_t i, std::size_t kind, std::uint32_t rows, std::uint32_t experts) {
  TERRACE_RETURN_IF_ERROR(check_time(i));
  Batch made = make_batch(i, kind, rows, experts);
  made.batch.pairs = made.pairs;
  made.batch.ranges = made.ranges;
  const kernels::SumsView sums{sums_.data(), model_.shape(kind).d_model, model_.shift()};
  const std::uint64_t before = i == 0 ? leg(i).counters().wait_us : leg(i).counters().compute_us;
  keep_pace(rows);
  const auto begin = std::chrono::steady_clock::now();
  TERRACE_ASSIGN_OR_RETURN(const legs::Ticket ticket, leg(i).submit(made.batch));
  Time time;
  time.sending = seconds_since(begin);
  TERRACE_RETURN_IF_ERROR(leg(i).collect(ticket, sums, failed_));
  time.total = seconds_since(begin);
  const std::uint64_t after = i == 0 ? leg(i).counters().wait_us : leg(i).counters().compute_us;
  // The host's own computing ends with it; a node says how long its kernels took, and the rest is its round trip.
  time.compute = i == 0 ? time.total : std::min(micro(after - before), time.total);
  return time;
}

// As a step does: nodes first, then the host computes, then replies are added.
Result<std::vector<ProbeLegs::Time>> ProbeLegs::run_all(std::size_t kind, std::uint32_t rows,
                                                        std::span<const std::uint32_t> experts) {
  TERRACE_RETURN_IF_ERROR(check_time(n_legs() - 1));
  std::vector<Batch> made;
  std::vector<Time> times(n_legs());
  std::vector<std::uint64_t> before(n_legs());
  std::vector<legs::Ticket> tickets(n_legs());
  for (std::size_t i = 0; i < n_legs(); ++i) made.push_back(make_batch(i, kind, rows, experts[i]));
  const kernels::SumsView sums{sums_.data(), model_.shape(kind).d_model, model_.shift()};
  keep_pace(rows);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t k = 1; k <= n_legs(); ++k) {
    const std::size_t i = k % n_legs();
    if (experts[i] == 0) continue;
    made[i].batch.pairs = made[i].pairs;
    made[i].batch.ranges = made[i].ranges;
    before[i] = leg(i).counters().compute_us;
    TERRACE_ASSIGN_OR_RETURN(tickets[i], leg(i).submit(made[i].batch));
  }
  for (std::size_t i = 0; i < n_legs(); ++i) {
    if (experts[i] == 0) continue;
    const auto collecting = std::chrono::steady_clock::now();
    TERRACE_RETURN_IF_ERROR(leg(i).collect(tickets[i], sums, failed_));
    times[i].total = seconds_since(begin);
    times[i].compute = i == 0 ? seconds_since(collecting) : micro(leg(i).counters().compute_us - before[i]);
  }
  return times;
}

std::uint32_t ProbeLegs::experts_for(std::size_t leg, std::uint32_t rows) const {
  const std::uint32_t most = rows == 1 ? kDecodePairs : kSlicePairs / rows;
  const std::uint32_t allowed = std::max(options_.max_rows, 2u) * top_k_ / rows;  // pairs of a session's batch
  return std::clamp(std::min(most, allowed), 1u, model_.count(leg));
}

Status ProbeLegs::measure_alone(std::size_t i, std::size_t kind, planner::LegMeasurement& measured) {
  planner::ExpertCost& cost = measured.alone[kind];
  for (std::size_t at = 0; at < kCostRows.size(); ++at) {
    const std::uint32_t rows = std::min(kCostRows[at], options_.max_rows);
    const std::uint32_t experts = experts_for(i, rows);
    TERRACE_ASSIGN_OR_RETURN(const Pair2 many, medians<2>({}, [&]() -> Result<Pair2> {
                               TERRACE_ASSIGN_OR_RETURN(const Time time, run(i, kind, rows, experts));
                               return Pair2{time.compute, time.total};
                             }));
    // A batch smaller than the point: time goes with the rows.
    cost.each[at] = many[0] / experts * kCostRows[at] / rows;
    if (at != 0 || experts == 1) continue;
    TERRACE_ASSIGN_OR_RETURN(const Pair2 one, medians<2>({}, [&]() -> Result<Pair2> {
                               TERRACE_ASSIGN_OR_RETURN(const Time time, run(i, kind, 1, 1));
                               return Pair2{time.compute, time.total};
                             }));
    const DecodeCost decode = decode_cost(many[0], one[0], experts);
    cost.each[0] = decode.each;
    cost.decode_fixed = decode.fixed;
  }
  return {};
}

// All legs at once, each with as many experts as take about equal time alone, so that all compute until the end.
Status ProbeLegs::measure_together(std::size_t kind, std::vector<planner::LegMeasurement>& measured) {
  for (std::size_t at = 0; at < kCostRows.size(); ++at) {
    const std::uint32_t rows = std::min(kCostRows[at], options_.max_rows);
    double longest = 0;
    for (std::size_t i = 0; i < n_legs(); ++i)
      longest = std::max(longest, measured[i].alone[kind].each[at] * experts_for(i, rows));
    std::vector<std::uint32_t> experts;
    for (std::size_t i = 0; i < n_legs(); ++i) {
      const double each = std::max(measured[i].alone[kind].each[at], 1e-9);
      const std::uint32_t most = std::max(options_.max_rows, 2u) * top_k_ / rows;
      experts.push_back(std::clamp(static_cast<std::uint32_t>(std::min(longest / each + 0.5, 64.0)), 1u,
                                   std::clamp(std::min(most, 64u), 1u, model_.count(i))));
    }
    std::vector<std::vector<double>> seen(n_legs());
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < 400 && (round < 6 || seconds_since(begin) < 0.1); ++round) {
      TERRACE_ASSIGN_OR_RETURN(const std::vector<Time> times, run_all(kind, rows, experts));
      for (std::size_t i = 0; i < n_legs() && round > 0; ++i) seen[i].push_back(times[i].compute);
    }
    for (std::size_t i = 0; i < n_legs(); ++i) {
      const double middle = median(std::move(seen[i]));
      // By the same experts alone: what is fixed slows down as they do.
      const planner::ExpertCost& alone = measured[i].alone[kind];
      const double fixed = at == 0 ? alone.decode_fixed : 0;
      const double before = fixed + alone.each[at] * experts[i] * rows / kCostRows[at];
      const double slow = before > 0 ? std::max(1.0, middle / before) : 1;
      planner::ExpertCost& together = measured[i].together[kind];
      together.each[at] = alone.each[at] * slow;
      if (at == 0) together.decode_fixed = alone.decode_fixed * slow;
    }
  }
  return {};
}

// Two sizes, each in one range so that nothing is computed while bytes travel: what does not go with the bytes is the
// round trip.
Status ProbeLegs::measure_link(std::size_t i, planner::LegMeasurement& measured) {
  struct Point {
    double wire = 0, bytes = 0;
  };
  const auto measure = [&](std::uint32_t rows) -> Result<Point> {
    const legs::LegCounters before = leg(i).counters();
    double runs = 0;
    TERRACE_ASSIGN_OR_RETURN(const Pair2 times, medians<2>(kWireRepeats, [&]() -> Result<Pair2> {
                               TERRACE_ASSIGN_OR_RETURN(const Time time, run(i, 0, rows, 1));
                               ++runs;
                               return Pair2{time.total - time.compute, time.total};
                             }));
    const legs::LegCounters after = leg(i).counters();
    return Point{times[0], static_cast<double>(after.bytes_sent - before.bytes_sent + after.bytes_received -
                                               before.bytes_received) /
                               runs};
  };
  TERRACE_ASSIGN_OR_RETURN(const Point small, measure(1));
  TERRACE_ASSIGN_OR_RETURN(const Point large, measure(std::min(options_.max_rows, options_.range_rows)));
  if (large.wire > small.wire && large.bytes > small.bytes)
    measured.bytes_per_second = (large.bytes - small.bytes) / (large.wire - small.wire);
  const double travelling = measured.bytes_per_second > 0 ? small.bytes / measured.bytes_per_second : 0;
  measured.round_trip = measured.prompt_round_trip = std::max(small.wire - travelling, 0.0);
  TERRACE_ASSIGN_OR_RETURN(measured.weights_per_second,
                           nodes_[i - 1]->measure_weights_rate(model_.owners(), i, kWeightsBytes));
  return {};
}

Result<std::vector<planner::LegMeasurement>> ProbeLegs::measure_legs() {
  std::vector<planner::LegMeasurement> measured(n_legs());
  for (std::size_t i = 0; i < n_legs(); ++i) {
    measured[i].name = leg(i).name();
    measured[i].is_host = i == 0;
    measured[i].alone.resize(model_.n_kinds());
    measured[i].together.resize(model_.n_kinds());
    if (i > 0) {
      measured[i].machine = nodes_[i - 1]->probed().machine;
      measured[i].threads = nodes_[i - 1]->probed().threads;
      TERRACE_RETURN_IF_ERROR(measure_link(i, measured[i]));
    }
    for (std::size_t kind = 0; kind < model_.n_kinds(); ++kind)
      TERRACE_RETURN_IF_ERROR(measure_alone(i, kind, measured[i]));
  }
  for (std::size_t kind = 0; kind < model_.n_kinds(); ++kind) {
    if (n_legs() == 1)
      measured[0].together = measured[0].alone;
    else
      TERRACE_RETURN_IF_ERROR(measure_together(kind, measured));
  }
  return measured;
}

// Nodes' batches leave one after the other: what the last one waits for.
Result<double> ProbeLegs::measure_fan_out() {
  if (nodes_.size() < 2) return 0.0;
  double sum = 0;
  for (std::size_t i = 1; i < n_legs(); ++i) {
    TERRACE_ASSIGN_OR_RETURN(const Pair2 one, medians<2>(kWireRepeats, [&]() -> Result<Pair2> {
                               TERRACE_ASSIGN_OR_RETURN(const Time time, run(i, 0, 1, 1));
                               return Pair2{time.sending, time.total};
                             }));
    sum += one[0];
  }
  return sum / static_cast<double>(nodes_.size());
}

// Each row's top_k of sum(owned) experts, as the probe's experts of the legs that own them.
void ProbeLegs::draw(std::uint32_t rows, std::uint32_t top_k, std::span<const std::uint32_t> owned, bool new_layer) {
  std::vector<std::uint16_t> leg_of;
  std::vector<std::uint32_t> index_of;
  for (std::size_t i = 0; i < owned.size(); ++i)
    for (std::uint32_t e = 0; e < owned[i]; ++e) {
      leg_of.push_back(static_cast<std::uint16_t>(i));
      index_of.push_back(e);
    }
  std::vector<std::uint32_t> all(leg_of.size());
  std::iota(all.begin(), all.end(), 0u);
  std::vector<std::uint32_t> taken(owned.size());
  for (std::size_t i = 0; i < owned.size(); ++i) {
    choose_first(i, rows);
    if (rows > 1 && new_layer) next_[i] = (next_[i] + owned[i]) % model_.count(i);
  }
  drawn_.clear();
  for (std::uint32_t row = 0; row < rows; ++row) {
    std::fill(taken.begin(), taken.end(), 0);
    for (std::uint32_t k = 0; k < top_k; ++k) {
      std::swap(all[k], all[k + random_() % (all.size() - k)]);
      const std::size_t i = leg_of[all[k]];
      // One row: the next ones in turn. Several: the layer's own.
      const std::uint32_t expert = rows == 1 ? next_[i] + taken[i]++ : next_[i] + index_of[all[k]];
      drawn_.push_back(static_cast<std::uint16_t>(model_.first(i) + expert % model_.count(i)));
    }
    for (std::size_t i = 0; i < owned.size() && rows == 1; ++i) next_[i] = (next_[i] + taken[i]) % model_.count(i);
  }
}

Result<double> ProbeLegs::run_layer(std::size_t kind, std::uint32_t rows, std::uint32_t top_k) {
  TERRACE_RETURN_IF_ERROR(check_time(n_legs() - 1));
  const std::size_t d_model = model_.shape(kind).d_model;
  sums_.resize(std::size_t{rows} * d_model);
  failed_.assign(rows, 0);
  drawn_weights_.assign(std::size_t{rows} * top_k, model_.weight(kind));
  legs::RoutedRows routed;
  routed.layer = static_cast<std::uint32_t>(kind);
  routed.rows = model_.plain_rows();
  routed.n_rows = rows;
  routed.experts = drawn_.data();
  routed.weights = drawn_weights_.data();
  routed.priority = rows == 1 ? legs::Priority::kDecode : legs::Priority::kPrompt;
  const auto begin = std::chrono::steady_clock::now();
  TERRACE_RETURN_IF_ERROR(dispatcher_->submit(routed));
  TERRACE_RETURN_IF_ERROR(dispatcher_->collect({sums_.data(), d_model, model_.shift()}, failed_));
  return seconds_since(begin);
}

Result<double> ProbeLegs::measure_dispatch(std::uint32_t rows, std::uint32_t top_k) {
  std::vector<std::uint32_t> owned(n_legs(), 0);
  owned[0] = std::max(top_k, rows == 1 ? top_k : model_.count(0));
  TERRACE_ASSIGN_OR_RETURN(const Pair2 times, medians<2>(kLayerRepeats, [&]() -> Result<Pair2> {
                             draw(rows, top_k, owned, true);
                             const std::uint64_t before = host_->counters().wait_us;
                             TERRACE_ASSIGN_OR_RETURN(const double total, run_layer(0, rows, top_k));
                             return Pair2{total - micro(host_->counters().wait_us - before), total};
                           }));
  return std::max(times[0], 0.0);
}

Status ProbeLegs::check_layers(std::uint32_t rows, std::uint32_t top_k, std::span<const std::uint32_t> owned) {
  for (std::size_t i = 0; i < owned.size(); ++i)
    if (model_.count(i) < (rows == 1 ? std::min(owned[i], top_k) : owned[i]))
      return Error(ErrorCode::kRefused, fmt::format("{}: too few of the probe's experts for a layer", leg(i).name()));
  return {};
}

// The parts of a step take a layer's experts one after the other.
Status ProbeLegs::Layers::submit(const legs::RoutedRows& routed) {
  TERRACE_RETURN_IF_ERROR(legs_.check_time(legs_.n_legs() - 1));
  const auto begin = std::chrono::steady_clock::now();
  const std::uint32_t kind = legs_.model_.kind_of_layer(routed.layer);
  legs_.draw(routed.n_rows, top_k_, owned_, routed.layer != layer_);
  layer_ = routed.layer;
  Drawn& drawn = drawn_[n_submitted_++ % drawn_.size()];
  std::swap(drawn.experts, legs_.drawn_);
  drawn.weights.assign(drawn.experts.size(), legs_.model_.weight(kind));
  legs::RoutedRows probed = routed;
  probed.layer = kind;
  probed.rows = legs_.model_.plain_rows();
  probed.experts = drawn.experts.data();
  probed.weights = drawn.weights.data();
  drawing_ += seconds_since(begin);
  const Status submitted = legs_.dispatcher_->submit(probed);
  inside_ += seconds_since(begin);
  return submitted;
}

Status ProbeLegs::Layers::collect(kernels::SumsView sums, std::span<std::uint8_t> failed) {
  const auto begin = std::chrono::steady_clock::now();
  const Status collected = legs_.dispatcher_->collect(sums, failed);
  std::fill(failed.begin(), failed.end(), std::uint8_t{0});  // experts of no model
  inside_ += seconds_since(begin);
  return collected;
}

}  // namespace terrace::app
