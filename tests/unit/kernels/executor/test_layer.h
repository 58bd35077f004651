// One layer's experts in memory for tests of the executor: slabs, rows in every class, and what the executor should
// give, computed pair by pair with the scalar kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/executor/executor.h"
#include "kernels/registry/registry.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::test {

struct Slab {
  Bytes gate, up, down;
  kernels::SlabView view() const { return {gate.data(), up.data(), down.data()}; }
};

struct Layer {
  kernels::ExpertShape shape;
  std::vector<Slab> experts;

  static Layer random(const kernels::ExpertShape& shape, std::size_t n_experts, Rng& rng) {
    Layer layer{shape, {}};
    for (std::size_t e = 0; e < n_experts; ++e)
      layer.experts.push_back({random_weights(shape.gate, shape.ff, shape.d_model, rng),
                               random_weights(shape.up, shape.ff, shape.d_model, rng),
                               random_weights(shape.down, shape.d_model, shape.ff, rng)});
    return layer;
  }
};

// The rows of a batch [n_rows, d_model], quantised once for each class.
class Rows {
 public:
  Rows(std::vector<float> x, std::size_t d_model) : x_(std::move(x)), d_model_(d_model) {
    for (const ActivationClass c : {ActivationClass::kF32, ActivationClass::kA8x32, ActivationClass::kA8x256}) {
      if (d_model % block_values(c) != 0) continue;
      const std::size_t stride = row_bytes(c, d_model);
      Bytes& bytes = by_class_[c] = Bytes(size() * stride);
      for (std::size_t row = 0; row < size(); ++row)
        kernels::quantize_row_scalar(c, &x_[row * d_model], d_model, &bytes[row * stride]);
    }
  }
  static Rows random(std::size_t n_rows, std::size_t d_model, Rng& rng) {
    std::normal_distribution<float> bell(0.0f, 0.05f);
    std::vector<float> x(n_rows * d_model);
    for (float& value : x) value = bell(rng);
    return Rows(std::move(x), d_model);
  }

  std::size_t size() const { return x_.size() / d_model_; }
  kernels::RowsView view(ActivationClass c) const { return {c, by_class_.at(c).data(), row_bytes(c, d_model_)}; }
  kernels::BatchView batch(const kernels::ExpertKernels& k, std::span<const kernels::Pair> pairs) const {
    return {view(k.gate_class()), view(k.up_class()), size(), pairs};
  }

 private:
  std::vector<float> x_;
  std::size_t d_model_;
  std::map<ActivationClass, Bytes> by_class_;
};

// Each row uses n_used experts of n_experts, with weights that add up to about 1; sorted by expert, then row.
inline std::vector<kernels::Pair> random_pairs(std::size_t n_rows, std::size_t n_experts, std::size_t n_used,
                                               Rng& rng) {
  std::vector<kernels::Pair> pairs;
  for (std::size_t row = 0; row < n_rows; ++row) {
    std::vector<std::uint16_t> ids(n_experts);
    for (std::size_t e = 0; e < n_experts; ++e) ids[e] = static_cast<std::uint16_t>(e);
    std::shuffle(ids.begin(), ids.end(), rng);
    for (std::size_t i = 0; i < n_used; ++i) {
      const float weight = static_cast<float>(1 + rng() % 1000) / 500.0f / static_cast<float>(n_used);
      pairs.push_back({static_cast<std::uint16_t>(row), ids[i], weight});
    }
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const auto& a, const auto& b) { return std::pair(a.expert, a.row) < std::pair(b.expert, b.row); });
  return pairs;
}

// What one call of the executor gave.
struct Outcome {
  std::vector<std::int64_t> sums;    // [n_rows, d_model]
  std::vector<float> slots;          // [n_pairs, d_model]
  std::vector<std::uint8_t> failed;  // [n_rows]
};

// docs/numerics.md 3 to 5 for each pair alone, without slices, chunks or workers.
inline Outcome expected(const Layer& layer, const Rows& rows, std::span<const kernels::Pair> pairs, int shift,
                        kernels::Activations activations = kernels::Activations::kQuantised) {
  using namespace kernels;
  const ExpertKernels k = *select_expert_kernels(layer.shape, {}, Isa::kScalar, activations);
  const Ops& ops = all_ops().front();
  const std::size_t d_model = layer.shape.d_model, ff = layer.shape.ff;
  const auto product = [&](const WeightKernels& w, const Bytes& part, const std::byte* x, std::size_t n_rows) {
    const std::size_t cols = part.size() / n_rows / info(w.type).block_bytes * info(w.type).block_values;
    std::vector<float> y(n_rows), scratch(cols);
    const auto* floats = reinterpret_cast<const float*>(x);
    if (activations == Activations::kF32) {
      dot_rows_dequantized(w, part.data(), part.size() / n_rows, n_rows, &floats, 1, cols, y.data(), n_rows,
                           scratch.data());
    } else {
      w.dot_rows(part.data(), part.size() / n_rows, n_rows, &x, 1, cols, y.data(), n_rows);
    }
    return y;
  };
  Outcome all{std::vector<std::int64_t>(rows.size() * d_model), {}, std::vector<std::uint8_t>(rows.size())};
  for (const Pair& pair : pairs) {
    const Slab& slab = layer.experts.at(pair.expert);
    std::vector<float> h = product(k.gate, slab.gate, rows.view(k.gate_class()).row(pair.row), ff);
    const std::vector<float> up = product(k.up, slab.up, rows.view(k.up_class()).row(pair.row), ff);
    ops.silu_mul(h.data(), up.data(), ff, h.data());
    std::vector<float> out(d_model);
    bool ok = ops.all_finite(h.data(), ff);
    if (ok) {
      Bytes quantised(row_bytes(k.down_class(), ff));
      quantize_row_scalar(k.down_class(), h.data(), ff, quantised.data());
      out = product(k.down, slab.down, quantised.data(), d_model);
      ok = ops.add_fixed(pair.weight, out.data(), d_model, shift, &all.sums[pair.row * d_model]);
    }
    if (!ok) all.failed[pair.row] = 1;
    all.slots.insert(all.slots.end(), out.begin(), out.end());
  }
  return all;
}

inline constexpr auto kAlways = [] { return true; };

// One executor call as a test writes it. Sums may come from an earlier call.
struct Call {
  const Layer& layer;
  const Rows& rows;
  kernels::ExpertKernels kernels;
  int shift = 24;

  Result<kernels::ExecStats> sums(kernels::Executor& executor, std::span<const kernels::Pair> pairs, Outcome& into,
                                  kernels::Executor::BetweenSlices between = kAlways) const {
    into.sums.resize(rows.size() * layer.shape.d_model);
    into.failed.resize(rows.size());
    const auto slab_of = [&](std::uint16_t expert) { return layer.experts.at(expert).view(); };
    return executor.run(kernels, slab_of, rows.batch(kernels, pairs), {into.sums.data(), layer.shape.d_model, shift},
                        into.failed, between);
  }
  Result<kernels::ExecStats> slots(kernels::Executor& executor, std::span<const kernels::Pair> pairs, Outcome& into,
                                   kernels::Executor::BetweenSlices between = kAlways) const {
    into.slots.resize(pairs.size() * layer.shape.d_model);
    into.failed.resize(rows.size());
    const auto slab_of = [&](std::uint16_t expert) { return layer.experts.at(expert).view(); };
    return executor.run_slots(kernels, slab_of, rows.batch(kernels, pairs), into.slots, into.failed, between);
  }
};

}  // namespace terrace::test
