#include "coordinator/app/bench_legs.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/time.h"
#include "coordinator/app/open_stream.h"
#include "coordinator/app/recorded_experts.h"
#include "coordinator/legs/dispatcher.h"
#include "kernels/cpu/activations/rows.h"

namespace terrace::app {
namespace {

using Clock = std::chrono::steady_clock;
using Mode = RecordedExperts::Mode;

// The steps of the test, again and again: always the same ones.
class Steps {
 public:
  static Result<Steps> make(Engine& engine, const BenchTest& test) {
    TERRACE_ASSIGN_OR_RETURN(OpenStream filled, OpenStream::open(engine.trunk()));
    Steps steps(engine, test, std::move(filled));
    const std::size_t batch = engine.trunk().max_rows();
    for (auto rest = std::span<const std::int32_t>(steps.tokens_).first(test.depth); !rest.empty();) {
      const auto chunk = rest.first(std::min(rest.size(), batch));
      rest = rest.subspan(chunk.size());
      TERRACE_RETURN_IF_ERROR(steps.filled_.step(chunk, WantLogits::kNone));
    }
    return steps;
  }

  // Seconds of all of them.
  Result<double> take(Mode mode) {
    TERRACE_ASSIGN_OR_RETURN(OpenStream stream, filled_.fork(filled_.length()));
    experts_.set(mode);
    const auto begin = Clock::now();
    Status status;
    for (std::size_t i = test_.depth; i < tokens_.size() && status.ok(); ++i)
      if (const auto stepped = stream.step({&tokens_[i], 1}, WantLogits::kLast); !stepped.ok())
        status = stepped.error();
    const double seconds = seconds_since(begin);
    experts_.set(Mode::kPass);
    if (!status.ok()) return status.error();
    return seconds;
  }

 private:
  Steps(Engine& engine, const BenchTest& test, OpenStream filled)
      : experts_(*engine.recorded()),
        test_(test),
        filled_(std::move(filled)),
        tokens_(bench_tokens(test, engine.trunk().info().vocabulary)) {}

  RecordedExperts& experts_;
  const BenchTest test_;
  OpenStream filled_;  // with the tokens before those of the test
  std::vector<std::int32_t> tokens_;
};

// Batches as they were recorded, each leg's by itself: rows are quantised and pairs sorted before a clock runs.
class LegReplay {
 public:
  LegReplay(const Engine& engine, const legs::Epoch& epoch, std::span<const RecordedLayer> recorded)
      : epoch_(epoch), waiting_(engine.cpus().waiting), shift_(engine.made_of().trunk.shift) {
    for (const RecordedLayer& layer : recorded) prepare(engine, layer);
  }

  double pairs_of(std::size_t leg) const {
    double pairs = 0;
    for (const Prepared& batch : batches_) pairs += static_cast<double>(batch.pairs[leg].size());
    return pairs;
  }

  // Adds what each batch takes of the leg alone.
  Status run(std::size_t leg, std::vector<double>& seconds) {
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      if (batches_[i].pairs[leg].empty()) continue;
      std::ranges::fill(sums_, 0);
      const auto begin = Clock::now();
      TERRACE_RETURN_IF_ERROR(compute(*epoch_.legs[leg], batch_of(batches_[i], leg)));
      seconds[i] += seconds_since(begin);
    }
    return {};
  }

 private:
  struct Prepared {
    std::uint32_t layer = 0, n_rows = 0;
    legs::Priority priority = legs::Priority::kDecode;
    std::vector<std::byte> gate, up;  // rows in the class of each; up: empty where it is gate's
    kernels::RowsView gate_rows, up_rows;
    legs::RowRange range;                           // all of them
    std::vector<std::vector<kernels::Pair>> pairs;  // [legs]
  };

  void prepare(const Engine& engine, const RecordedLayer& layer) {
    const kernels::ExpertKernels& kernels = engine.made_of().experts[layer.layer];
    d_model_ = kernels.shape.d_model;
    Prepared& made = batches_.emplace_back();
    made.layer = layer.layer;
    made.n_rows = layer.n_rows;
    made.priority = layer.priority;
    made.range = {0, layer.n_rows};
    const auto quantised = [&](ActivationClass activation) {
      return kernels::quantized_rows(engine.ops().quantize_row, activation,
                                     {layer.rows.data(), layer.n_rows, d_model_});
    };
    made.gate = quantised(kernels.gate_class());
    made.gate_rows = view(kernels.gate_class(), made.gate);
    if (kernels.up_class() != kernels.gate_class()) made.up = quantised(kernels.up_class());
    made.up_rows = made.up.empty() ? made.gate_rows : view(kernels.up_class(), made.up);
    made.pairs.resize(epoch_.legs.size());
    const std::size_t top_k = layer.experts.size() / layer.n_rows;
    const auto owners = epoch_.owners.owners(layer.layer);
    for (std::size_t i = 0; i < layer.experts.size(); ++i)
      made.pairs[owners[layer.experts[i]]].push_back(
          {static_cast<std::uint16_t>(i / top_k), layer.experts[i], layer.weights[i]});
    for (auto& pairs : made.pairs) std::ranges::stable_sort(pairs, {}, &kernels::Pair::expert);
    sums_.resize(std::max(sums_.size(), std::size_t{layer.n_rows} * d_model_));
    failed_.resize(std::max(failed_.size(), std::size_t{layer.n_rows}));
  }

  kernels::RowsView view(ActivationClass activation, const std::vector<std::byte>& rows) const {
    return {activation, rows.data(), row_bytes(activation, d_model_)};
  }

  legs::LegBatch batch_of(const Prepared& prepared, std::size_t leg) const {
    legs::LegBatch batch;
    batch.epoch = epoch_.acknowledged[leg];
    batch.layer = prepared.layer;
    batch.gate_rows = prepared.gate_rows;
    batch.up_rows = prepared.up_rows;
    batch.n_rows = prepared.n_rows;
    batch.pairs = prepared.pairs[leg];
    batch.ranges = {&prepared.range, 1};
    batch.priority = prepared.priority;
    return batch;
  }

  Status compute(legs::Leg& leg, const legs::LegBatch& batch) {
    const kernels::SumsView sums{sums_.data(), d_model_, shift_};
    const auto failed = std::span(failed_).first(batch.n_rows);
    TERRACE_ASSIGN_OR_RETURN(const legs::Ticket ticket, leg.submit(batch));
    if (!leg.by_range()) return leg.collect(ticket, sums, failed);
    Status status = wait_for(leg, ticket);
    if (status.ok()) status = leg.take(ticket, 0, sums, failed);
    leg.abandon(ticket);
    return status;
  }

  // As the dispatcher waits: by looking, then asleep.
  Status wait_for(legs::Leg& leg, legs::Ticket ticket) {
    for (const auto begin = Clock::now();;) {
      leg.progress();
      if (leg.range_state(ticket, 0) != legs::RangeState::kOpen) return {};
      TERRACE_RETURN_IF_ERROR(leg.ticket_status(ticket));
      if (waiting_ == Waiting::kSpinThenPark && Clock::now() - begin < kSpinTime) continue;
      waits_.clear();
      leg.add_waits(waits_);
      ::poll(waits_.data(), waits_.size(), 1);
    }
  }

  const legs::Epoch& epoch_;
  const Waiting waiting_;
  const int shift_;
  std::size_t d_model_ = 0;
  std::vector<Prepared> batches_;
  std::vector<std::int64_t> sums_;
  std::vector<std::uint8_t> failed_;
  std::vector<pollfd> waits_;
};

std::vector<std::size_t> legs_with_experts(const legs::Epoch& epoch) {
  std::vector<std::size_t> found;
  for (std::size_t leg = 0; leg < epoch.legs.size(); ++leg)
    if (epoch.owners.n_slabs(leg) != 0) found.push_back(leg);
  return found;
}

Status check_several(const legs::Epoch& epoch) {
  const std::vector<std::size_t> found = legs_with_experts(epoch);
  if (found.size() > 1) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--legs-alone: {} has all experts; give some to others (--node, --gpu with --vram)",
                           epoch.legs[found.front()]->name()));
}

// Everything of one test.
class AloneRun {
 public:
  static Result<AloneRun> make(Engine& engine, const BenchTest& test, std::uint32_t repeats) {
    TERRACE_ASSIGN_OR_RETURN(Steps steps, Steps::make(engine, test));
    AloneRun run(engine, test, repeats, std::move(steps));
    TERRACE_RETURN_IF_ERROR(run.find_legs());
    TERRACE_RETURN_IF_ERROR(run.steps_.take(Mode::kRecord));
    run.replay_.emplace(engine, *run.epoch_, engine.recorded()->recorded());
    run.result_.n_layers = engine.recorded()->recorded().size();
    run.seconds_.assign(run.owners_.size(), std::vector<double>(run.result_.n_layers));
    return run;
  }

  Result<LegsAloneResult> measure() {
    const std::vector<legs::LegCounters> before = counters();
    for (std::uint32_t i = 0; i < repeats_; ++i)
      for (std::size_t k = 0; k < owners_.size(); ++k)
        if (owners_[k] != card_) TERRACE_RETURN_IF_ERROR(replay_->run(owners_[k], seconds_[k]));
    const std::vector<legs::LegCounters> after = counters();
    for (std::size_t k = 0; k < owners_.size(); ++k)
      result_.legs[k].computing = static_cast<double>((after[k] - before[k]).compute_us) * 1e-6 / n_steps();
    TERRACE_RETURN_IF_ERROR(take_steps());
    if (engine_.dispatcher().latest() != epoch_)
      return Error(ErrorCode::kPeerGone, "--legs-alone: a leg went away while it was measured; measure again");
    conclude();
    return result_;
  }

 private:
  AloneRun(Engine& engine, const BenchTest& test, std::uint32_t repeats, Steps steps)
      : engine_(engine), repeats_(repeats), steps_(std::move(steps)), epoch_(engine.dispatcher().latest()) {
    result_.test = test;
  }

  double n_steps() const { return double{1} * result_.test.n_gen * repeats_; }

  Status find_legs() {
    const bool card_has_part = !engine_.recorded()->part_on_card().empty();
    owners_ = legs_with_experts(*epoch_);
    for (const std::size_t leg : owners_) {
      result_.legs.push_back({.name = epoch_->legs[leg]->name(), .kind = epoch_->legs[leg]->kind()});
      if (card_has_part && !epoch_->legs[leg]->slabs_on_card().empty()) card_ = leg;
    }
    return check_several(*epoch_);
  }

  std::vector<legs::LegCounters> counters() const {
    std::vector<legs::LegCounters> all;
    for (const std::size_t leg : owners_) all.push_back(epoch_->legs[leg]->counters());
    return all;
  }

  // In turn, so that what changes on the machine meanwhile meets all three.
  Status take_steps() {
    for (std::uint32_t i = 0; i < repeats_; ++i) {
      TERRACE_ASSIGN_OR_RETURN(const double all, steps_.take(Mode::kPass));
      TERRACE_ASSIGN_OR_RETURN(const double alone, steps_.take(Mode::kGiveNothing));
      result_.step_seconds += all / n_steps();
      result_.trunk_seconds += alone / n_steps();
      if (!card_) continue;
      TERRACE_ASSIGN_OR_RETURN(const double with_its_part, steps_.take(Mode::kGiveBack));
      with_card_seconds_ += with_its_part / n_steps();
    }
    return {};
  }

  // A card's part is what it adds to the trunk there, the same in each layer.
  void conclude() {
    const double n_gen = result_.test.n_gen;
    for (std::size_t k = 0; k < owners_.size(); ++k) {
      LegAlone& leg = result_.legs[k];
      leg.pairs = replay_->pairs_of(owners_[k]) / n_gen;
      if (owners_[k] == card_) {
        leg.computing = leg.seconds = std::max(with_card_seconds_ - result_.trunk_seconds, 0.0);
        std::ranges::fill(seconds_[k], leg.seconds * n_gen / static_cast<double>(result_.n_layers));
        continue;
      }
      for (double& batch : seconds_[k]) {
        batch /= repeats_;
        leg.seconds += batch / n_gen;
      }
    }
    result_.longest_seconds = sum_of_longest(seconds_, result_.legs) / n_gen;
  }

  Engine& engine_;
  const std::uint32_t repeats_;
  Steps steps_;
  const std::shared_ptr<const legs::Epoch> epoch_;
  std::vector<std::size_t> owners_;  // the legs of result_.legs
  std::optional<std::size_t> card_;  // whose pairs the trunk's card computes itself
  std::optional<LegReplay> replay_;
  std::vector<std::vector<double>> seconds_;  // [legs][recorded layers] of all repeats
  double with_card_seconds_ = 0;              // of a step of the trunk with its card's part
  LegsAloneResult result_;
};

}  // namespace

double sum_of_longest(const std::vector<std::vector<double>>& seconds, std::span<LegAlone> legs) {
  double sum = 0;
  const std::size_t n_batches = seconds.empty() ? 0 : seconds.front().size();
  for (std::size_t i = 0; i < n_batches; ++i) {
    std::size_t longest = 0;
    for (std::size_t leg = 1; leg < seconds.size(); ++leg)
      if (seconds[leg][i] > seconds[longest][i]) longest = leg;
    sum += seconds[longest][i];
    legs[longest].longest += 1;
  }
  return sum;
}

Status check_legs_alone(const Engine& engine) { return check_several(*engine.dispatcher().latest()); }

Result<LegsAloneResult> run_legs_alone(Engine& engine, const BenchTest& test, std::uint32_t repeats) {
  TERRACE_CHECK(test.n_gen > 0 && engine.recorded() != nullptr, "a test that generates, and an engine that records");
  TERRACE_ASSIGN_OR_RETURN(AloneRun run, AloneRun::make(engine, test, repeats));
  return run.measure();
}

nlohmann::ordered_json to_json(const LegsAloneResult& r) {
  nlohmann::ordered_json row;
  row["test"] = r.test.name() + "-alone";
  row["depth"] = r.test.depth;
  row["n_prompt"] = 0;
  row["n_gen"] = r.test.n_gen;
  row["step_us"] = r.step_seconds * 1e6;
  row["trunk_us"] = r.trunk_seconds * 1e6;
  auto legs = nlohmann::ordered_json::array();
  for (const LegAlone& leg : r.legs)
    legs.push_back({{"name", leg.name},
                    {"kind", legs::name(leg.kind)},
                    {"pairs", leg.pairs},
                    {"alone_us", leg.seconds * 1e6},
                    {"compute_us", leg.computing * 1e6},
                    {"longest_share", static_cast<double>(leg.longest) / static_cast<double>(r.n_layers)}});
  row["legs"] = std::move(legs);
  row["longest_us"] = r.longest_seconds * 1e6;
  row["sum_us"] = r.sum_seconds() * 1e6;
  row["step_over_sum"] = r.step_seconds / r.sum_seconds();
  return row;
}

std::string to_text(const LegsAloneResult& r) {
  std::string text = fmt::format("{} at depth {}, us a step: {:.0f}; the trunk alone {:.0f}\n", r.test.name(),
                                 r.test.depth, r.step_seconds * 1e6, r.trunk_seconds * 1e6);
  for (const LegAlone& leg : r.legs)
    text +=
        fmt::format("  {} alone: {:.1f} pairs, {:.0f}, of it computing {:.0f}; the longest in {:.0f}% of the layers\n",
                    leg.name, leg.pairs, leg.seconds * 1e6, leg.computing * 1e6,
                    100.0 * static_cast<double>(leg.longest) / static_cast<double>(r.n_layers));
  text += fmt::format(
      "  sum over layers of trunk and longest leg: {:.0f} + {:.0f} = {:.0f}; the step takes {:.3f} of it\n",
      r.trunk_seconds * 1e6, r.longest_seconds * 1e6, r.sum_seconds() * 1e6, r.step_seconds / r.sum_seconds());
  return text;
}

}  // namespace terrace::app
