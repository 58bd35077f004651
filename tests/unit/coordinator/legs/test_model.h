// Three small layers of random experts, all of one width, whose gate and up want rows of equal and of different
// classes; and rows with their chosen experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "common/wire/messages.h"
#include "coordinator/legs/card_leg.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/routed_experts.h"
#include "tests/unit/kernels/executor/test_layer.h"

namespace terrace::legs::test {

inline constexpr std::uint32_t kSeed = 4711;
inline constexpr std::size_t kWidth = 256;  // d_model
inline constexpr std::uint32_t kExperts = 8;
inline constexpr std::uint32_t kTopK = 3;
inline constexpr std::uint32_t kMostRows = 700;
inline constexpr std::uint64_t kEpoch = 7;

struct TestModel {
  std::vector<terrace::test::Layer> layers;
  std::vector<kernels::ExpertKernels> kernels;
  kernels::Ops ops = *kernels::select_ops(kernels::detect_cpu_features(), std::nullopt);

  explicit TestModel(std::uint32_t seed = kSeed) {
    terrace::test::Rng rng(seed);
    const kernels::ExpertShape shapes[] = {
        {TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ4_0, kWidth, 64},  // rows in two classes
        {TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kF16, kWidth, 96},
        {TensorType::kF32, TensorType::kF32, TensorType::kQ8_0, kWidth, 32},  // rows as they are
    };
    for (const kernels::ExpertShape& shape : shapes) {
      layers.push_back(terrace::test::Layer::random(shape, kExperts, rng));
      kernels.push_back(*kernels::select_expert_kernels(shape, kernels::detect_cpu_features(), std::nullopt,
                                                        kernels::Activations::kQuantised));
    }
  }
  TestModel(const TestModel&) = delete;

  std::uint32_t n_layers() const { return static_cast<std::uint32_t>(layers.size()); }
  SlabLookup lookup() const {
    return [this](std::uint32_t layer, std::uint16_t expert) { return layers.at(layer).experts.at(expert).view(); };
  }
  SlabPartReader part_reader() const {
    return [this](std::uint32_t layer, std::uint16_t expert, SlabPart part, std::uint64_t at, std::span<std::byte> to) {
      const terrace::test::Slab& slab = layers.at(layer).experts.at(expert);
      const auto& from = part == SlabPart::kGate ? slab.gate : (part == SlabPart::kUp ? slab.up : slab.down);
      TERRACE_CHECK(at + to.size() <= from.size(), "inside the part");
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
      return Status();
    };
  }
  std::vector<kernels::ExpertShape> shapes() const {
    std::vector<kernels::ExpertShape> all;
    for (const auto& layer : layers) all.push_back(layer.shape);
    return all;
  }
  wire::BatchLimits limits() const {
    return {.max_rows = kMostRows,
            .max_pairs = kMostRows * kTopK,
            .max_ranges = 8,
            .d_model = kWidth,
            .n_experts = kExperts,
            .n_layers = n_layers()};
  }
};

// n_rows rows, each with kTopK experts.
struct Routed {
  std::vector<float> rows;
  std::vector<std::uint16_t> experts;
  std::vector<float> weights;
  RoutedRows view;

  Routed(std::uint32_t layer, std::uint32_t n_rows, Priority priority, terrace::test::Rng& rng)
      : rows(n_rows * kWidth), experts(n_rows * kTopK), weights(n_rows * kTopK) {
    std::normal_distribution<float> bell(0.0f, 0.05f);
    for (float& value : rows) value = bell(rng);
    std::vector<std::uint16_t> ids(kExperts);
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    for (std::uint32_t row = 0; row < n_rows; ++row) {
      std::shuffle(ids.begin(), ids.end(), rng);
      for (std::uint32_t i = 0; i < kTopK; ++i) {
        experts[row * kTopK + i] = ids[i];
        weights[row * kTopK + i] = static_cast<float>(1 + rng() % 1000) / 1500.0f;
      }
    }
    view = {layer, rows.data(), n_rows, experts.data(), weights.data(), priority};
  }
};

// One batch for one leg, with all it borrows.
struct TestBatch {
  terrace::test::Rows rows;
  std::vector<kernels::Pair> pairs;
  std::vector<RowRange> ranges;
  LegBatch batch;

  // The pairs of experts below `n_owned` of random rows; ranges of `range_rows`.
  TestBatch(const TestModel& model, std::uint32_t layer, std::uint32_t n_rows, std::uint32_t range_rows,
            std::uint32_t n_owned, Priority priority, terrace::test::Rng& rng)
      : rows(terrace::test::Rows::random(n_rows, kWidth, rng)),
        pairs(terrace::test::random_pairs(n_rows, kExperts, kTopK, rng)) {
    std::erase_if(pairs, [&](const kernels::Pair& pair) { return pair.expert >= n_owned; });
    for (std::uint32_t first = 0; first < n_rows; first += range_rows)
      ranges.push_back({first, std::min(range_rows, n_rows - first)});
    batch.epoch = kEpoch;
    batch.layer = layer;
    batch.gate_rows = rows.view(model.kernels[layer].gate_class());
    batch.up_rows = rows.view(model.kernels[layer].up_class());
    batch.n_rows = n_rows;
    batch.pairs = pairs;
    batch.ranges = ranges;
    batch.priority = priority;
  }
  TestBatch(const TestBatch&) = delete;
};

struct Sums {
  std::vector<std::int64_t> values;
  std::vector<std::uint8_t> failed;
  explicit Sums(std::size_t n_rows) : values(n_rows * kWidth), failed(n_rows) {}
  kernels::SumsView view() { return {.data = values.data(), .d_model = kWidth}; }
  bool operator==(const Sums&) const = default;
};

// What the batch should give, by an executor here.
inline Sums local_sums(const TestModel& model, const LegBatch& batch) {
  Serial serial;
  kernels::Executor executor(serial, model.ops);
  Sums sums(batch.n_rows);
  const auto slab_of = [&](std::uint16_t expert) { return model.layers[batch.layer].experts[expert].view(); };
  const auto done =
      executor.run(model.kernels[batch.layer], slab_of, {batch.gate_rows, batch.up_rows, batch.n_rows, batch.pairs},
                   sums.view(), sums.failed, [] { return true; });
  TERRACE_CHECK(done.ok(), "the test's own executor");
  return sums;
}

// The same as slots.
struct Slots {
  std::vector<float> values;  // [n_pairs, kWidth]
  std::vector<std::uint8_t> failed;
  explicit Slots(const LegBatch& batch) : values(batch.pairs.size() * kWidth), failed(batch.n_rows) {}
  bool operator==(const Slots&) const = default;
};
inline Slots local_slots(const TestModel& model, const LegBatch& batch) {
  Serial serial;
  kernels::Executor executor(serial, model.ops);
  Slots slots(batch);
  const auto slab_of = [&](std::uint16_t expert) { return model.layers[batch.layer].experts[expert].view(); };
  const auto done = executor.run_slots(model.kernels[batch.layer], slab_of,
                                       {batch.gate_rows, batch.up_rows, batch.n_rows, batch.pairs}, slots.values,
                                       slots.failed, [] { return true; });
  TERRACE_CHECK(done.ok(), "the test's own executor");
  return slots;
}

}  // namespace terrace::legs::test
