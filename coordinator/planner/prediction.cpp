#include "coordinator/planner/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/wire/messages.h"

namespace terrace::planner {
namespace {

// Of a step, that a further part of a prompt must save: each has frames and a reading of weights of its own.
constexpr double kLeastGain = 0.01;
constexpr std::uint32_t kUsualWidth = 3;  // bytes of a packed sum in ordinary models (docs/wire.md 9)

double section(double bytes) { return 16 + std::ceil(bytes / 16) * 16; }

double reply_bytes(double d_model, double rows) {
  return 64 + section(16) + section(rows * d_model / 64 * (1 + 64 * kUsualWidth));
}

double batch_bytes(const ModelNumbers& model, const LayerKind& kind, double rows, double pairs, double ranges) {
  const double up = kind.up_class == kind.gate_class
                        ? 0
                        : section(rows * static_cast<double>(row_bytes(kind.up_class, model.d_model)));
  return 64 + section(32) + section(rows * static_cast<double>(row_bytes(kind.gate_class, model.d_model))) + up +
         section(8 * pairs) + section(8 * ranges);
}

// ln of n over k.
double log_choose(double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }

// What one step's layers are predicted with.
class Layers {
 public:
  Layers(const ModelNumbers& model, const Measurements& measured, const Places& places, bool decode,
         std::uint32_t parts = 1)
      : model_(model), measured_(measured), places_(places), decode_(decode) {
    TERRACE_CHECK(measured.legs.size() == places.size() && !places.empty() && places[0] == Place::kItself,
                  "a place for each leg, the host at itself");
    std::map<std::uint64_t, std::size_t> numbers;
    for (std::size_t leg = 0; leg < places.size(); ++leg) {
      const auto [at, is_new] = numbers.try_emplace(measured.legs[leg].machine, numbers.size());
      machine_.push_back(at->second);
      if (is_new) legs_of_machine_.push_back(0);
      ++legs_of_machine_[at->second];
    }
    any_node_ = std::count(places_.begin(), places_.end(), Place::kItself) > 1;
    prediction_.parts = any_node_ ? parts : 1;
    parts_ = prediction_.parts;
    rows_ = decode ? 1 : model.prompt_rows / parts_;
    prediction_.legs.resize(places.size());
  }

  StepPrediction run() {
    const StepMeasurement& step = decode_ ? measured_.decode : measured_.prompt;
    // Most layers are alike: each sort once.
    std::map<std::pair<std::uint32_t, std::vector<std::uint32_t>>, double> sorts;
    for (std::size_t layer = 0; layer < model_.kind_of_layer.size(); ++layer)
      sorts[{model_.kind_of_layer[layer], model_.owned_of_layer[layer]}] += 1;
    for (const auto& [sort, n] : sorts) {
      kind_ = sort.first;
      const auto& owned = sort.second;
      if (decode_) {
        const auto visit = [&, times = n](std::span<const std::uint32_t> counts, double probability) {
          add(std::vector<double>(counts.begin(), counts.end()), probability * times);
        };
        if (!for_each_draw(owned, model_.top_k, visit)) add(expected_counts(owned), n);
      } else {
        add(std::vector<double>(owned.begin(), owned.end()), parts_ * n);
      }
    }
    const auto n_layers = static_cast<double>(model_.kind_of_layer.size());
    prediction_.trunk = step.trunk;
    prediction_.dispatch = step.dispatch * n_layers;
    if (parts_ > 1) prediction_.hidden = prediction_.trunk + prediction_.dispatch + prediction_.layers - cycles();
    if (any_node_)
      prediction_.whole =
          (step.whole_over_terms - 1) * std::max(0.0, prediction_.layers - reading_ + prediction_.dispatch -
                                                          prediction_.hidden + (decode_ ? 0 : prediction_.trunk));
    prediction_.step =
        prediction_.trunk + prediction_.dispatch + prediction_.layers + prediction_.whole - prediction_.hidden;
    prediction_.halves_pay = decode_ && any_node_ && prediction_.layers > prediction_.trunk + 2 * own_;
    const double rows = decode_ ? 1 : model_.prompt_rows;
    prediction_.tokens_per_second = prediction_.step > 0 ? rows / prediction_.step : 0;
    finish_terms(n_layers);
    return std::move(prediction_);
  }

 private:
  // Of all layers, with every part of a step under way: as long as what is busiest takes for all of them, or as one
  // part takes from its trunk to its last leg. And what is at the step's ends, where not every part is under way.
  double cycles() {
    const double here = 1.0 / static_cast<double>(model_.kind_of_layer.size());
    const double trunk = measured_.prompt.trunk / parts_ * here, dispatch = measured_.prompt.dispatch / parts_;
    double sum = 0, ours = 0, ends = 0;
    for (const PartLayer& part : part_layers_) {
      const double serial = trunk + dispatch + part.own, slot = std::max(serial, part.busiest_node);
      const double chain = trunk + dispatch + part.time, cycle = std::max(parts_ * slot, chain);
      sum += part.n / parts_ * cycle;
      if (parts_ * serial >= cycle) ours += part.n / parts_ * cycle;
      // The busiest node waits for the first part to come and its last one's sums still travel; behind the last part's
      // trunk only its legs' time is left, less the host's own of every part.
      const double one_end = serial >= part.busiest_node ? std::max(0.0, part.time - parts_ * part.own) : chain - slot;
      ends += part.n / parts_ * here * std::min(one_end, (parts_ - 1) * slot);
    }
    we_limit_ = 2 * ours >= sum;
    return sum + ends;
  }

  std::vector<double> expected_counts(std::span<const std::uint32_t> owned) const {
    std::vector<double> counts;
    for (const std::uint32_t n : owned)
      counts.push_back(static_cast<double>(model_.top_k) * n / static_cast<double>(model_.n_experts));
    return counts;
  }

  // One leg's work on some experts. decode: `amount` experts of one row; prompt: the experts that it owns.
  struct Load {
    double experts = 0, rows = 0, pairs = 0, alone = 0, together = 0, bytes_out = 0, bytes_back = 0, ranges = 1;
  };
  Load load_of(std::size_t computing, double amount) const {
    Load load;
    if (amount <= 0) return load;
    const ExpertCost& alone = measured_.legs[computing].alone[kind_];
    const ExpertCost& together = measured_.legs[computing].together[kind_];
    const LayerKind& kind = model_.kinds[kind_];
    if (decode_) {
      load.experts = load.pairs = amount;
      load.rows = 1;
      load.alone = alone.decode_fixed + amount * alone.each[0];
      load.together = together.decode_fixed + amount * together.each[0];
      load.bytes_out = batch_bytes(model_, kind, 1, amount, 1);
      load.bytes_back = reply_bytes(model_.d_model, 1);
      return load;
    }
    // A node computes range by range, the host the whole batch.
    const double all_rows = rows_;
    const double rows = measured_.legs[computing].is_host ? all_rows : std::min<double>(all_rows, model_.range_rows);
    load.ranges = all_rows / rows;
    const double n = model_.n_experts, k = model_.top_k;
    load.experts = expected_distinct(n, k, amount, rows) * load.ranges;
    load.pairs = all_rows * k * amount / n;
    load.rows = load.pairs / load.experts;
    load.alone = load.experts * expert_time(alone, load.rows);
    load.together = load.experts * expert_time(together, load.rows);
    const double travelling =
        expected_rows(model_.n_experts, model_.top_k, static_cast<std::uint32_t>(amount), all_rows);
    load.bytes_out = batch_bytes(model_, kind, travelling, load.pairs, std::ceil(load.ranges));
    load.bytes_back = load.ranges * reply_bytes(model_.d_model, travelling / load.ranges);
    return load;
  }

  // One draw of a layer's experts: what each leg owns of them, by whom it is computed.
  void add(const std::vector<double>& owned, double probability) {
    double in_memory = owned[0], from_file = 0;
    std::vector<LegTask> tasks;
    std::vector<std::size_t> leg_of_task;
    std::size_t nodes = 0;
    wires_.clear();
    for (std::size_t leg = 1; leg < owned.size(); ++leg) {
      if (places_[leg] == Place::kHostMemory) in_memory += owned[leg];
      if (places_[leg] == Place::kHostFile) from_file += owned[leg];
      if (places_[leg] != Place::kItself || owned[leg] <= 0) continue;
      tasks.push_back(node_task(leg, load_of(leg, owned[leg]), probability));
      leg_of_task.push_back(leg);
      ++nodes;
    }
    if (in_memory + from_file > 0) {
      tasks.push_back(host_task(in_memory, from_file, probability));
      leg_of_task.push_back(0);
    }
    if (tasks.empty()) return;
    const std::vector<double> ends = finish_times(tasks, legs_of_machine_);
    const auto last = static_cast<std::size_t>(std::max_element(ends.begin(), ends.end()) - ends.begin());
    const double time = ends[last] + (nodes > 1 ? static_cast<double>(nodes - 1) * measured_.fan_out : 0);
    prediction_.layers += probability * time;
    if (from_file > 0) {
      for (LegTask& task : tasks) task.least = 0;
      const std::vector<double> read = finish_times(tasks, legs_of_machine_);
      reading_ += probability * (ends[last] - *std::max_element(read.begin(), read.end()));
    }
    prediction_.legs[leg_of_task[last]].limits += probability * time;
    const double own = leg_of_task.back() == 0 ? ends.back() : 0;
    own_ += probability * own;
    if (parts_ <= 1) return;
    double busiest = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i)
      if (leg_of_task[i] != 0) busiest = std::max({busiest, tasks[i].work, wires_[i].out, wires_[i].back});
    part_layers_.push_back({.n = probability, .time = time, .own = own, .busiest_node = busiest});
  }

  LegTask node_task(std::size_t leg, const Load& load, double probability) {
    const LegMeasurement& node = measured_.legs[leg];
    const double rate = node.bytes_per_second;
    const double out = rate > 0 ? load.bytes_out / rate : 0;
    const double back = rate > 0 ? load.bytes_back / rate : 0;
    const double round_trip = decode_ ? node.round_trip : node.prompt_round_trip;
    wires_.push_back({out, back});
    LegTask task{machine_[leg], round_trip + out, load.alone, ratio(load), 0, 0};
    // Range by range: one is computed while the one before travels.
    const double back_range = back / load.ranges;
    task.tail = back_range + (load.ranges - 1) * std::max(0.0, back_range - load.alone / load.ranges);
    LegTerms& terms = prediction_.legs[leg];
    terms.round_trip += probability * round_trip;
    terms.bytes_out += probability * load.bytes_out;
    terms.bytes_back += probability * load.bytes_back;
    terms.wire += probability * (out + back);
    add_compute(terms, load, probability);
    return task;
  }

  // Slabs of a lost node are read while others are computed: the longer of the two, behind the host's own.
  LegTask host_task(double in_memory, double from_file, double probability) {
    const Load own = load_of(0, in_memory), read = load_of(0, from_file);
    LegTask task{machine_[0], 0, own.alone + read.alone, 1, 0, 0};
    const double alone = own.alone + read.alone;
    task.slow = alone > 0 ? std::max(1.0, (own.together + read.together) / alone) : 1;
    LegTerms& terms = prediction_.legs[0];
    if (from_file > 0) {
      const double bytes = read.experts * static_cast<double>(model_.kinds[kind_].slab_bytes);
      const double rate = measured_.disk.bytes_per_second();
      const double seconds = rate > 0 ? bytes / rate : 0;
      task.least = own.alone + seconds;
      terms.read += probability * seconds;
    }
    Load both = own;
    both.experts += read.experts;
    both.pairs += read.pairs;
    both.alone = alone;
    add_compute(terms, both, probability);
    return task;
  }

  static double ratio(const Load& load) { return load.alone > 0 ? std::max(1.0, load.together / load.alone) : 1; }
  static void add_compute(LegTerms& terms, const Load& load, double probability) {
    terms.experts += probability * load.experts;
    terms.rows += probability * load.pairs;  // divided by the experts at the end
    terms.compute += probability * load.alone;
  }

  // Sums over layers become means, and the slowest is named.
  void finish_terms(double n_layers) {
    std::size_t slowest = 0;
    for (std::size_t leg = 0; leg < prediction_.legs.size(); ++leg) {
      LegTerms& terms = prediction_.legs[leg];
      if (prediction_.legs[slowest].limits < terms.limits) slowest = leg;
      terms.rows = terms.experts > 0 ? terms.rows / terms.experts : 0;
      for (double* mean : {&terms.round_trip, &terms.bytes_out, &terms.bytes_back, &terms.wire, &terms.experts,
                           &terms.compute, &terms.read})
        *mean /= std::max(n_layers, 1.0);
    }
    for (LegTerms& terms : prediction_.legs)
      terms.limits = prediction_.layers > 0 ? terms.limits / prediction_.layers : 0;
    const LegTerms& worst = prediction_.legs[slowest];
    if (prediction_.trunk >= prediction_.layers || (we_limit_ && prediction_.trunk >= own_)) {
      prediction_.limited_by = "trunk";
    } else if (we_limit_) {
      prediction_.limited_by = measured_.legs[0].name + " (its computing)";
    } else if (worst.read > worst.compute) {
      prediction_.limited_by = measured_.legs[slowest].name + " (reading its file)";
    } else {
      const bool link = worst.wire + worst.round_trip > worst.compute;
      prediction_.limited_by = measured_.legs[slowest].name + (link ? " (its link)" : " (its computing)");
    }
  }

  const ModelNumbers& model_;
  const Measurements& measured_;
  const Places& places_;
  const bool decode_;
  bool any_node_ = false;
  double parts_ = 1;  // of a prompt's step
  double rows_ = 1;   // that go through a layer together
  // Layers of one sort with a part's rows; n counts every part.
  struct PartLayer {
    double n = 0, time = 0, own = 0, busiest_node = 0;
  };
  struct Wire {
    double out = 0, back = 0;
  };
  std::vector<PartLayer> part_layers_;
  std::vector<Wire> wires_;                   // [nodes] of the draw in hand
  double own_ = 0;                            // the host's computing, all layers
  double reading_ = 0;                        // what layers take longer for slabs that are read, all layers
  bool we_limit_ = false;                     // parts: trunk and host are the busiest for most of the time
  std::vector<std::size_t> machine_;          // [legs]
  std::vector<std::size_t> legs_of_machine_;  // [machines]
  std::size_t kind_ = 0;                      // of the layer in hand
  StepPrediction prediction_;
};

// How much slower than alone with `running` of `all` legs computing.
double slowed(double slow, std::size_t running, std::size_t all) {
  if (all < 2 || running < 2) return 1;
  return 1 + (slow - 1) * static_cast<double>(running - 1) / static_cast<double>(all - 1);
}

}  // namespace

std::vector<std::uint32_t> owned_in_layer(const legs::OwnerTable& owners, std::uint32_t layer) {
  std::vector<std::uint32_t> owned(owners.n_legs(), 0);
  for (const std::uint16_t leg : owners.owners(layer)) ++owned[leg];
  return owned;
}

double expert_time(const ExpertCost& cost, double rows) {
  std::size_t i = 1;
  while (i + 1 < kCostRows.size() && rows > kCostRows[i]) ++i;
  const double low = kCostRows[i - 1], high = kCostRows[i];
  const double line = cost.each[i - 1] + (cost.each[i] - cost.each[i - 1]) * (rows - low) / (high - low);
  // Beyond the last point time goes with the rows.
  return rows > high ? std::max(line, cost.each[i]) : std::max(line, 0.0);
}

double expected_distinct(double n, double k, double owned, double rows) {
  return owned * (1 - std::pow(1 - k / n, rows));
}

double expected_rows(std::uint32_t n, std::uint32_t k, std::uint32_t owned, double rows) {
  if (owned > n - k) return rows;  // no room elsewhere for k
  return rows * (1 - std::exp(log_choose(n - owned, k) - log_choose(n, k)));
}

std::vector<double> finish_times(std::span<const LegTask> tasks, std::span<const std::size_t> legs_of_machine) {
  std::vector<double> left, ends(tasks.size(), -1);
  for (const LegTask& task : tasks) left.push_back(task.work);
  const auto computes = [&](std::size_t i, double now) { return ends[i] < 0 && tasks[i].lead <= now; };
  double now = 0;
  while (std::any_of(ends.begin(), ends.end(), [](double end) { return end < 0; })) {
    std::vector<std::size_t> running(legs_of_machine.size(), 0);
    for (std::size_t i = 0; i < tasks.size(); ++i)
      if (computes(i, now)) ++running[tasks[i].machine];
    const auto slow = [&](std::size_t i) {
      return slowed(tasks[i].slow, running[tasks[i].machine], legs_of_machine[tasks[i].machine]);
    };
    // Until one ends or begins.
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (computes(i, now)) next = std::min(next, now + left[i] * slow(i));
      if (ends[i] < 0 && tasks[i].lead > now) next = std::min(next, tasks[i].lead);
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (!computes(i, now)) continue;
      const double until = now + left[i] * slow(i);
      if (until <= next)
        ends[i] = until;
      else
        left[i] -= (next - now) / slow(i);
    }
    now = next;
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) ends[i] = std::max(ends[i], tasks[i].least) + tasks[i].tail;
  return ends;
}

bool for_each_draw(std::span<const std::uint32_t> owned, std::uint32_t k, VisitDraw visit) {
  const double n = std::accumulate(owned.begin(), owned.end(), 0.0);
  TERRACE_CHECK(k <= n, "more experts are drawn than there are");
  if (std::exp(log_choose(static_cast<double>(owned.size()) - 1 + k, k)) > static_cast<double>(kMostDraws) + 0.5)
    return false;
  std::vector<std::uint32_t> counts(owned.size(), 0);
  const double log_all = log_choose(n, k);
  const auto place = [&](auto& self, std::size_t leg, std::uint32_t left, double log_ways) -> void {
    if (leg + 1 == owned.size()) {
      if (left > owned[leg]) return;
      counts[leg] = left;
      visit(counts, std::exp(log_ways + log_choose(owned[leg], left) - log_all));
      return;
    }
    for (std::uint32_t take = 0; take <= std::min(left, owned[leg]); ++take) {
      counts[leg] = take;
      self(self, leg + 1, left - take, log_ways + log_choose(owned[leg], take));
    }
  };
  place(place, 0, k, 0);
  return true;
}

StepPrediction predict_decode(const ModelNumbers& model, const Measurements& measured, const Places& places) {
  return Layers(model, measured, places, true).run();
}

StepPrediction predict_prompt(const ModelNumbers& model, const Measurements& measured, const Places& places) {
  // Whole is no choice of a run with nodes.
  StepPrediction best = Layers(model, measured, places, false, std::min(model.prompt_parts, 2u)).run();
  for (std::uint32_t parts = 3; parts <= model.prompt_parts; ++parts)
    if (StepPrediction more = Layers(model, measured, places, false, parts).run();
        more.step < (1 - kLeastGain) * best.step)
      best = std::move(more);
  return best;
}

}  // namespace terrace::planner
