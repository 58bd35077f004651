#include "coordinator/app/kernel_replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <utility>

#include "common/base/check.h"
#include "coordinator/arch/architectures.h"

namespace terrace::app {
namespace {

constexpr std::uint64_t kNumberSeed = 2;
// A pair's weight: sums stay far from their limits.
constexpr float kPairWeight = 0.125f;

}  // namespace

std::vector<std::uint32_t> distinct_experts(const RecordedStep& step, const arch::ModelInfo& info) {
  const std::size_t a_layer = step.n_rows * info.top_k;
  TERRACE_CHECK(step.experts.size() == a_layer * info.n_layers, "a recorded step has every layer's experts");
  std::vector<std::uint32_t> distinct(info.n_layers);
  std::vector<bool> seen(info.n_experts);
  for (std::uint32_t layer = 0; layer < info.n_layers; ++layer) {
    std::fill(seen.begin(), seen.end(), false);
    for (std::size_t i = 0; i < a_layer; ++i) {
      auto chosen = seen[step.experts[layer * a_layer + i]];
      if (!chosen) ++distinct[layer];
      chosen = true;
    }
  }
  return distinct;
}

KernelReplay::KernelReplay(const Engine::Made& made, const arch::ModelInfo& info, arch::DenseGroups dense,
                           Parallel& parallel, const kernels::Ops& ops)
    : made_(made),
      info_(info),
      dense_(std::move(dense)),
      parallel_(parallel),
      ops_(ops),
      multiplier_(parallel),
      executor_(parallel, ops) {}

Result<std::unique_ptr<KernelReplay>> KernelReplay::make(const Engine::Made& made, const arch::ModelInfo& info,
                                                         Parallel& parallel, const kernels::Ops& ops) {
  TERRACE_ASSIGN_OR_RETURN(arch::DenseGroups dense, arch::dense_groups(made.file, made.trunk));
  return std::unique_ptr<KernelReplay>(new KernelReplay(made, info, std::move(dense), parallel, ops));
}

// Sorting is no kernel: it is done before the clock runs.
KernelReplay::Planned KernelReplay::plan(const RecordedStep& step) const {
  Planned planned{step.n_rows, step.n_logits, std::vector<Layer>(info_.n_layers)};
  const std::size_t a_layer = step.n_rows * info_.top_k;
  for (std::size_t layer = 0; layer < planned.layers.size(); ++layer) {
    auto& pairs = planned.layers[layer].pairs;
    for (std::size_t i = 0; i < a_layer; ++i)
      pairs.push_back({static_cast<std::uint16_t>(i / info_.top_k), step.experts[layer * a_layer + i], kPairWeight});
    std::ranges::stable_sort(pairs, {}, &kernels::Pair::expert);
  }
  return planned;
}

arch::ActivationRows& KernelReplay::rows(std::size_t n_rows, std::size_t cols) {
  const auto [at, is_new] = rows_.try_emplace({n_rows, cols}, parallel_, ops_);
  if (!is_new) return at->second;
  std::mt19937_64 random(kNumberSeed);
  std::normal_distribution<float> normal;
  const std::size_t had = numbers_.size();
  TERRACE_CHECK(had + n_rows * cols <= numbers_.capacity(), "rows that were not prepared");
  for (std::size_t i = 0; i < n_rows * cols; ++i) numbers_.push_back(normal(random));
  at->second.set(numbers_.data() + had, n_rows, cols);
  return at->second;
}

// All that is allocated and quantised.
void KernelReplay::prepare(std::size_t n_rows) {
  std::size_t most_y = 0, n_numbers = 0;
  const auto see = [&](const arch::DenseGroup& group) {
    std::size_t y = 0;
    for (const arch::Matrix& matrix : group) y += matrix.rows;
    most_y = std::max(most_y, y * n_rows);
    n_numbers += n_rows * group.front().cols;
  };
  for (const auto& layer : dense_.layers) std::ranges::for_each(layer, see);
  see(dense_.head);
  // Spans of numbers_ are borrowed, so it must not move: it grows before anything is borrowed.
  rows_.clear();
  numbers_.clear();
  numbers_.reserve(2 * n_numbers + n_rows * info_.d_model);
  y_.resize(std::max(y_.size(), most_y));
  sums_.resize(std::max(sums_.size(), n_rows * info_.d_model));
  failed_.resize(std::max(failed_.size(), n_rows));
}

void KernelReplay::multiply(const arch::DenseGroup& group, std::size_t n_rows) {
  std::array<arch::Product, arch::Multiplier::kMaxProducts> products;
  float* y = y_.data();
  for (std::size_t i = 0; i < group.size(); ++i) {
    products.at(i) = {&group[i], y};
    y += group[i].rows * n_rows;
  }
  multiplier_.run(std::span(products).first(group.size()), rows(n_rows, group.front().cols));
}

kernels::RowsView KernelReplay::expert_rows(ActivationClass activation, std::size_t n_rows) {
  const std::byte* const* row = rows(n_rows, info_.d_model).in(activation);
  return {activation, row[0], row_bytes(activation, info_.d_model)};
}

void KernelReplay::run_experts(std::size_t layer, const Planned& step) {
  const kernels::ExpertKernels& kernels = made_.experts[layer];
  kernels::BatchView batch;
  batch.gate_rows = expert_rows(kernels.gate_class(), step.n_rows);
  batch.up_rows = expert_rows(kernels.up_class(), step.n_rows);
  batch.n_rows = step.n_rows;
  batch.pairs = step.layers[layer].pairs;
  const auto slab_of = [&](std::uint16_t expert) { return made_.slabs(static_cast<std::uint32_t>(layer), expert); };
  const kernels::SumsView sums{sums_.data(), info_.d_model, made_.trunk.shift};
  const auto ran =
      executor_.run(kernels, slab_of, batch, sums, std::span(failed_).first(step.n_rows), [] { return true; });
  TERRACE_CHECK(ran.ok(), "nobody stops these experts");
}

void KernelReplay::run(const Planned& step) {
  std::fill_n(sums_.begin(), step.n_rows * info_.d_model, 0);
  for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
    for (const arch::DenseGroup& group : dense_.layers[layer]) multiply(group, step.n_rows);
    run_experts(layer, step);
  }
  if (step.n_logits > 0) multiply(dense_.head, step.n_logits);
}

double KernelReplay::seconds(std::span<const RecordedStep> steps) {
  std::vector<Planned> planned;
  for (const RecordedStep& step : steps) {
    TERRACE_CHECK(step.n_rows == steps[0].n_rows && step.n_logits == steps[0].n_logits, "steps of one size");
    planned.push_back(plan(step));
  }
  if (planned.empty()) return 0;
  prepare(planned.front().n_rows);
  run(planned.front());  // quantises the rows
  const auto begin = std::chrono::steady_clock::now();
  for (const Planned& step : planned) run(step);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace terrace::app
