// A card's trunk for tests: the scalar operations over host memory, row by row, blocks of the cache by number.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/card/card_trunk.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"

namespace terrace::test {

class FakeTrunk final : public kernels::CardTrunk {
 public:
  FakeTrunk(kernels::CardTrunkModel model, const kernels::CardTrunkLimits& limits)
      : model_(std::move(model)),
        limits_(limits),
        ops_(kernels::all_ops().front()),
        executor_(serial_, ops_),
        steps_(limits.max_parts) {}

  kernels::CardStepInput begin_part(const kernels::CardStepSize& size, std::uint32_t part) override {
    TERRACE_CHECK(part < limits_.max_parts, "more parts than the limits");
    use(part);
    const std::size_t n = size.n_rows, pairs = model_.n_rot / 2;
    now_->size = size;
    now_->layer = 0;
    now_->added = true;
    now_->polls = 0;
    now_->x.assign(n * model_.d_model, 0.0f);
    now_->h = now_->x;
    now_->sums.assign(now_->x.size(), 0);
    now_->own_sums = now_->sums;
    now_->angles.assign(2 * n * pairs, 0.0f);
    now_->words.assign(3 * n + size.n_wanted + size.n_tables * stride(), 0);
    now_->ids.assign(model_.layers.size() * n * model_.top_k, 0);
    now_->weights.assign(n * model_.top_k, 0.0f);
    now_->codes.assign(n, kNone);
    std::uint32_t* const words = now_->words.data();
    float* const angles = now_->angles.data();
    return {now_->x.data(), angles,        angles + n * pairs, words,
            words + n,      words + 2 * n, words + 3 * n,      words + 3 * n + size.n_wanted,
            stride()};
  }

  Result<kernels::CardStepResult> run(std::span<const kernels::SlabView> slabs) override {
    ++whole_steps;
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer)
      TERRACE_RETURN_IF_ERROR(compute_layer(layer, slabs));
    return end();
  }

  bool starts(const kernels::CardStepSize& size) const override { return size.n_rows <= most_started_rows; }
  Status start(std::span<const kernels::SlabView> slabs) override {
    ++started_steps;
    slabs_ = slabs;
    is_started_ = true;
    return {};
  }
  // The card's own experts are computed first: their sums wait beside those that others give.
  Result<kernels::CardRoutedRows> routed(std::uint32_t layer, GiveWay give_way) override {
    TERRACE_CHECK(is_started_, "routed() of a step that was not started");
    if (give_way != nullptr) {
      give_way();
      ++gave_way;
    }
    TERRACE_RETURN_IF_ERROR(compute_layer(layer, slabs_));
    std::fill(now_->sums.begin(), now_->sums.end(), kNotYet);
    return routed_rows();
  }
  void give_sums(std::uint32_t) override {}
  Result<kernels::CardStepResult> finish() override {
    is_started_ = false;
    return end();
  }
  void give_up() override {
    ++given_up;
    is_started_ = false;
    queue_.clear();
  }

  // As on a card: what is queued runs in its order, at once or, `as_late_as_possible`, when it is asked for.
  Status queue_layer(std::uint32_t part, std::uint32_t layer, std::span<const kernels::SlabView> slabs) override {
    if (broken) return gone();
    if (queued) queued(part, layer);
    steps_[part].polls = 0;
    queue_.push_back({part, layer, slabs});
    return as_late_as_possible ? Status() : run_queue(part);
  }
  // Not there when it is asked for first.
  Result<std::optional<kernels::CardRoutedRows>> poll_routed(std::uint32_t part) override {
    if (steps_[part].polls++ == 0 || comes_to_who_waits) return std::optional<kernels::CardRoutedRows>();
    TERRACE_ASSIGN_OR_RETURN(const kernels::CardRoutedRows routed, rows_of(part));
    return std::optional(routed);
  }
  Result<kernels::CardRoutedRows> wait_routed(std::uint32_t part) override {
    ++waited;
    return rows_of(part);
  }
  std::span<std::int64_t> sums_of(std::uint32_t part) override { return steps_[part].sums; }
  Result<const float*> add_and_read(std::uint32_t) override {
    use(0);
    add();
    return now_->x.data();
  }
  Result<kernels::CardStepResult> head(std::uint32_t part) override {
    TERRACE_CHECK(queue_.empty(), "a part ends before its layers were taken");
    use(part);
    return end();
  }
  Status copy_block(std::uint32_t to, std::uint32_t from) override {
    ++copied_blocks;
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer)
      for (std::uint32_t head = 0; head < model_.n_kv_heads; ++head)
        cache_[{to, layer, head}] = cache_[{from, layer, head}];
    return {};
  }

  bool broken = false;
  std::uint64_t whole_steps = 0;
  std::uint64_t started_steps = 0, given_up = 0;
  std::uint32_t most_started_rows = 16;
  std::uint64_t copied_blocks = 0;
  std::uint64_t waited = 0;         // for a layer's rows, asleep
  std::uint64_t gave_way = 0;       // while it looked for those of a started step
  bool comes_to_who_waits = false;  // not to who polls
  bool as_late_as_possible = false;
  std::function<void(std::uint32_t part, std::uint32_t layer)> queued;  // hears of every queue_layer()

 private:
  // What sums hold until those of others are there.
  static constexpr std::int64_t kNotYet = std::int64_t{1} << 40;
  // A part of a step.
  struct Step {
    kernels::CardStepSize size;
    std::uint32_t layer = 0;  // computed last
    bool added = true;        // its sums
    int polls = 0;
    std::vector<float> x, h, angles, weights;
    std::vector<std::uint32_t> words, codes;
    std::vector<std::uint16_t> ids;
    std::vector<std::int64_t> sums, own_sums;
    std::map<std::uint32_t, std::vector<float>> q;  // by row
  };
  struct Queued {
    std::uint32_t part, layer;
    std::span<const kernels::SlabView> slabs;
  };

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct HeadBlock {
    std::vector<Line> k, v;
  };

  Result<kernels::CardRoutedRows> rows_of(std::uint32_t part) {
    TERRACE_RETURN_IF_ERROR(run_queue(part));
    use(part);
    return routed_rows();
  }
  std::size_t stride() const { return (limits_.context + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions; }
  float* x(std::uint32_t row) { return now_->x.data() + std::size_t{row} * model_.d_model; }
  std::uint32_t position(std::uint32_t row) const { return now_->words[row]; }
  std::uint32_t block(std::uint32_t row, std::size_t i) const {
    const std::uint32_t table = now_->words[2 * now_->size.n_rows + row];
    return now_->words[3 * now_->size.n_rows + now_->size.n_wanted + table * stride() + i];
  }
  HeadBlock& head_block(std::uint32_t number, std::uint32_t layer, std::uint32_t head) {
    HeadBlock& found = cache_[{number, layer, head}];
    const std::size_t bytes = kernels::kKvBlockPositions * kernels::bytes(limits_.kv);
    found.k.resize(bytes * model_.key_dim / sizeof(Line));
    found.v.resize(bytes * model_.value_dim / sizeof(Line));
    return found;
  }
  void fail(std::uint32_t row, std::uint32_t layer, kernels::CardFailure what) {
    now_->codes[row] = std::min(now_->codes[row], layer * 16 + static_cast<std::uint32_t>(what));
  }

  std::vector<float> norm(std::uint32_t row, const float* w) {
    std::vector<float> h(model_.d_model);
    ops_.rms_norm(x(row), w, h.size(), model_.norm_eps, h.data());
    if (!ops_.all_finite(h.data(), h.size())) std::fill(h.begin(), h.end(), 0.0f);
    return h;
  }
  std::vector<float> times(const kernels::HostMatrix& matrix, const std::vector<float>& row) {
    const auto kernels = kernels::select_weight_kernels(matrix.type, {}, kernels::Isa::kScalar).value();
    std::vector<std::byte> quantised(row_bytes(kernels.activation, matrix.cols));
    const auto* form = reinterpret_cast<const std::byte*>(row.data());
    if (kernels.activation != ActivationClass::kF32) {
      kernels::quantize_row_scalar(kernels.activation, row.data(), matrix.cols, quantised.data());
      form = quantised.data();
    }
    std::vector<float> y(matrix.rows);
    kernels.dot_rows(matrix.data, row_bytes(matrix.type, matrix.cols), matrix.rows, &form, 1, matrix.cols, y.data(),
                     matrix.rows);
    return y;
  }

  void rotate(std::uint32_t row, const float* w, float* head) {
    const std::size_t pairs = model_.n_rot / 2;
    if (w != nullptr) ops_.rms_norm(head, w, model_.key_dim, model_.attention_norm_eps, head);
    ops_.rope(head, now_->angles.data() + row * pairs, now_->angles.data() + (now_->size.n_rows + row) * pairs,
              model_.n_rot, model_.pairing);
  }
  void store(std::uint32_t row, std::uint32_t layer, const std::vector<float>& h) {
    const kernels::CardTrunkLayer& weights = model_.layers[layer];
    std::vector<float> k = times(weights.k, h), v = times(weights.v, h);
    now_->q[row] = times(weights.q, h);
    for (std::uint32_t i = 0; i < model_.n_heads; ++i)
      rotate(row, weights.q_norm, now_->q[row].data() + i * model_.key_dim);
    if (!ops_.all_finite(now_->q[row].data(), now_->q[row].size())) fail(row, layer, kernels::CardFailure::kQueries);
    const std::size_t slot = position(row) % kernels::kKvBlockPositions;
    for (std::uint32_t i = 0; i < model_.n_kv_heads; ++i) {
      HeadBlock& at = head_block(block(row, position(row) / kernels::kKvBlockPositions), layer, i);
      rotate(row, weights.k_norm, k.data() + i * model_.key_dim);
      ops_.store_k(k.data() + i * model_.key_dim, model_.key_dim, slot, limits_.kv,
                   reinterpret_cast<std::byte*>(at.k.data()));
      ops_.store_v(v.data() + i * model_.value_dim, model_.value_dim, slot, limits_.kv,
                   reinterpret_cast<std::byte*>(at.v.data()));
    }
  }
  std::vector<float> attend(std::uint32_t row, std::uint32_t layer) {
    const std::size_t n_keys = position(row) + 1, group = model_.n_heads / model_.n_kv_heads;
    std::vector<float> out(std::size_t{model_.n_heads} * model_.value_dim);
    std::vector<float> scratch(kernels::attention_scratch_floats(group, model_.value_dim));
    for (std::uint32_t head = 0; head < model_.n_kv_heads; ++head) {
      std::vector<const std::byte*> k, v;
      for (std::size_t i = 0; i * kernels::kKvBlockPositions < n_keys; ++i) {
        HeadBlock& at = head_block(block(row, i), layer, head);
        k.push_back(reinterpret_cast<const std::byte*>(at.k.data()));
        v.push_back(reinterpret_cast<const std::byte*>(at.v.data()));
      }
      ops_.attend({.q = now_->q[row].data() + head * group * model_.key_dim,
                   .out = out.data() + head * group * model_.value_dim,
                   .k = k.data(),
                   .v = v.data(),
                   .n_keys = n_keys,
                   .n_heads = group,
                   .head_dim = model_.key_dim,
                   .value_dim = model_.value_dim,
                   .scale = model_.score_scale,
                   .type = limits_.kv,
                   .scratch = scratch.data()});
    }
    if (!ops_.all_finite(out.data(), out.size())) std::fill(out.begin(), out.end(), 0.0f);
    return out;
  }
  void choose(std::uint32_t row, std::uint32_t layer, std::vector<float> logits) {
    kernels::RouterRule rule;
    rule.top_k = model_.top_k;
    if (model_.scales_weights) rule.scale = model_.expert_scale;
    if (!ops_.all_finite(logits.data(), logits.size())) {
      fail(row, layer, kernels::CardFailure::kRouter);
      std::fill(logits.begin(), logits.end(), 0.0f);
    }
    std::vector<float> scratch(2 * logits.size());
    kernels::route(logits.data(), logits.size(), rule, ops_.exp, scratch.data(),
                   now_->ids.data() + (layer * now_->size.n_rows + row) * model_.top_k,
                   now_->weights.data() + row * model_.top_k);
  }
  // The sums of others and its own, of the layer computed last.
  void add() {
    if (std::exchange(now_->added, true)) return;
    std::vector<float> delta(model_.d_model);
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row) {
      std::vector<std::int64_t> sums(delta.size());
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = now_->sums[row * sums.size() + i] + now_->own_sums[row * sums.size() + i];
      if (!ops_.from_fixed(sums.data(), sums.size(), model_.shift, delta.data()))
        fail(row, now_->layer, kernels::CardFailure::kExperts);
      ops_.add(x(row), delta.data(), delta.size());
    }
  }
  void use(std::uint32_t part) { now_ = &steps_[part]; }
  static Error gone() { return Error(ErrorCode::kInternal, "card 0 (Fake 1): it fell off the bus"); }
  // Everything up to the part's own.
  Status run_queue(std::uint32_t part) {
    while (std::ranges::count(queue_, part, &Queued::part) > 0) {
      const Queued first = queue_.front();
      queue_.erase(queue_.begin());
      use(first.part);
      TERRACE_RETURN_IF_ERROR(compute_layer(first.layer, first.slabs));
    }
    return {};
  }
  Status compute_layer(std::uint32_t layer, std::span<const kernels::SlabView> slabs) {
    TERRACE_RETURN_IF_ERROR(attention(layer));
    std::ranges::fill(now_->own_sums, 0);
    if (slabs.empty()) return {};
    return compute_experts(layer, slabs.subspan(layer * model_.n_experts));
  }
  Status attention(std::uint32_t layer) {
    if (broken) return gone();
    add();
    now_->layer = layer;
    now_->added = false;
    const kernels::CardTrunkLayer& weights = model_.layers[layer];
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row) store(row, layer, norm(row, weights.attention_norm));
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row) {
      const std::vector<float> delta = times(weights.output, attend(row, layer));
      ops_.add(x(row), delta.data(), model_.d_model);
      const std::vector<float> h = norm(row, weights.expert_norm);
      std::copy(h.begin(), h.end(), now_->h.begin() + row * model_.d_model);
      choose(row, layer, times(weights.router, h));
    }
    return {};
  }
  kernels::CardRoutedRows routed_rows() const {
    const std::size_t n_choices = std::size_t{now_->size.n_rows} * model_.top_k;
    return {now_->h.data(), now_->ids.data() + now_->layer * n_choices, now_->weights.data()};
  }
  Result<kernels::CardStepResult> end() {
    if (broken) return gone();
    add();
    logits_.clear();
    largest_.clear();
    for (std::uint32_t i = 0; i < now_->size.n_wanted; ++i) {
      const auto row = times(model_.head, norm(now_->words[3 * now_->size.n_rows + i], model_.output_norm));
      logits_.insert(logits_.end(), row.begin(), row.end());
      largest_.push_back(static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    failures_.clear();
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row)
      if (now_->codes[row] != kNone)
        failures_.push_back({row, now_->codes[row] / 16, static_cast<kernels::CardFailure>(now_->codes[row] % 16)});
    return kernels::CardStepResult{logits_.data(), now_->size.n_wanted, largest_, now_->ids.data(), failures_};
  }
  Status compute_experts(std::uint32_t layer, std::span<const kernels::SlabView> slabs) {
    const kernels::CardRoutedRows routed = routed_rows();
    TERRACE_ASSIGN_OR_RETURN(const kernels::ExpertKernels kernels,
                             kernels::select_expert_kernels(model_.layers[layer].experts, {}, kernels::Isa::kScalar,
                                                            kernels::Activations::kQuantised));
    TERRACE_CHECK(kernels.gate_class() == kernels.up_class(), "the fake trunk makes rows once");
    const std::size_t d = model_.d_model, bytes = row_bytes(kernels.gate_class(), d);
    std::vector<std::byte> rows(now_->size.n_rows * bytes);
    std::vector<kernels::Pair> pairs;
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row) {
      if (kernels.gate_class() == ActivationClass::kF32)
        std::memcpy(rows.data() + row * bytes, routed.rows + row * d, bytes);
      else
        kernels::quantize_row_scalar(kernels.gate_class(), routed.rows + row * d, d, rows.data() + row * bytes);
      for (std::uint32_t k = 0; k < model_.top_k; ++k)
        if (slabs[routed.experts[row * model_.top_k + k]].gate != nullptr)
          pairs.push_back({static_cast<std::uint16_t>(row), routed.experts[row * model_.top_k + k],
                           routed.weights[row * model_.top_k + k]});
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.expert < b.expert; });
    std::vector<std::uint8_t> failed(now_->size.n_rows);
    const kernels::RowsView view{kernels.gate_class(), rows.data(), bytes};
    const auto slab_of = [&](std::uint16_t expert) { return slabs[expert]; };
    TERRACE_RETURN_IF_ERROR(executor_.run(kernels, slab_of, {view, view, now_->size.n_rows, pairs},
                                          {now_->own_sums.data(), d, model_.shift}, failed, [] { return true; }));
    for (std::uint32_t row = 0; row < now_->size.n_rows; ++row) {
      if (failed[row] == 0) continue;
      fail(row, layer, kernels::CardFailure::kExperts);
      std::fill_n(now_->own_sums.begin() + row * d, d, 0);
    }
    return {};
  }

  const kernels::CardTrunkModel model_;
  const kernels::CardTrunkLimits limits_;
  Serial serial_;
  const kernels::Ops ops_;
  kernels::Executor executor_;
  std::vector<Step> steps_;  // [max_parts]
  Step* now_ = nullptr;
  std::vector<Queued> queue_;
  std::vector<float> logits_;
  std::vector<std::int32_t> largest_;
  std::span<const kernels::SlabView> slabs_;
  bool is_started_ = false;
  std::map<std::array<std::uint32_t, 3>, HeadBlock> cache_;
  std::vector<kernels::CardRowFailure> failures_;
};

}  // namespace terrace::test
