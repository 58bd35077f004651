// A card's trunk for tests: the scalar operations over host memory, row by row, blocks of the cache by number.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels/card/card_trunk.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"

namespace terrace::test {

class FakeTrunk final : public kernels::CardTrunk {
 public:
  FakeTrunk(kernels::CardTrunkModel model, const kernels::CardTrunkLimits& limits)
      : model_(std::move(model)), limits_(limits), ops_(kernels::all_ops().front()), executor_(serial_, ops_) {}

  kernels::CardStepInput begin(const kernels::CardStepSize& size) override {
    size_ = size;
    const std::size_t n = size.n_rows, pairs = model_.n_rot / 2;
    x_.assign(n * model_.d_model, 0.0f);
    h_ = x_;
    sums_.assign(x_.size(), 0);
    angles_.assign(2 * n * pairs, 0.0f);
    words_.assign(3 * n + size.n_wanted + size.n_tables * stride(), 0);
    ids_.assign(model_.layers.size() * n * model_.top_k, 0);
    weights_.assign(n * model_.top_k, 0.0f);
    codes_.assign(n, kNone);
    std::uint32_t* const words = words_.data();
    return {x_.data(),     angles_.data(), angles_.data() + n * pairs,    words,   words + n,
            words + 2 * n, words + 3 * n,  words + 3 * n + size.n_wanted, stride()};
  }

  Result<kernels::CardStepResult> run(std::span<const kernels::SlabView> slabs) override {
    ++whole_steps;
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer) {
      TERRACE_ASSIGN_OR_RETURN(const kernels::CardRoutedRows routed, attention(layer, layer > 0));
      TERRACE_RETURN_IF_ERROR(compute_experts(layer, routed, slabs.subspan(layer * model_.n_experts)));
    }
    return head(true);
  }

  bool starts(const kernels::CardStepSize& size) const override { return size.n_rows <= most_started_rows; }
  Status start(std::span<const kernels::SlabView> slabs) override {
    ++started_steps;
    slabs_ = slabs;
    is_started_ = true;
    return {};
  }
  // The card's own experts are computed first: their sums wait beside those that others give.
  Result<kernels::CardRoutedRows> routed(std::uint32_t layer) override {
    TERRACE_CHECK(is_started_, "routed() of a step that was not started");
    TERRACE_ASSIGN_OR_RETURN(const kernels::CardRoutedRows rows, attention(layer, layer > 0));
    own_sums_.assign(sums_.size(), 0);
    if (!slabs_.empty()) {
      TERRACE_RETURN_IF_ERROR(compute_experts(layer, rows, slabs_.subspan(layer * model_.n_experts)));
      own_sums_.swap(sums_);
    }
    std::fill(sums_.begin(), sums_.end(), std::int64_t{1} << 40);  // until others' sums are there
    return rows;
  }
  void give_sums(std::uint32_t) override {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += own_sums_[i];
  }
  Result<kernels::CardStepResult> finish() override {
    is_started_ = false;
    return head(true);
  }
  void give_up() override {
    if (is_started_) ++given_up;
    is_started_ = false;
  }

  Result<kernels::CardRoutedRows> attention(std::uint32_t layer, bool add_sums) override {
    if (broken) return Error(ErrorCode::kInternal, "card 0 (Fake 1): it fell off the bus");
    if (add_sums) add(layer - 1);
    const kernels::CardTrunkLayer& weights = model_.layers[layer];
    for (std::uint32_t row = 0; row < size_.n_rows; ++row) store(row, layer, norm(row, weights.attention_norm));
    for (std::uint32_t row = 0; row < size_.n_rows; ++row) {
      const std::vector<float> delta = times(weights.output, attend(row, layer));
      ops_.add(x(row), delta.data(), model_.d_model);
      const std::vector<float> h = norm(row, weights.expert_norm);
      std::copy(h.begin(), h.end(), h_.begin() + row * model_.d_model);
      choose(row, layer, times(weights.router, h));
    }
    return kernels::CardRoutedRows{h_.data(), ids_.data() + layer * size_.n_rows * model_.top_k, weights_.data()};
  }
  std::span<std::int64_t> sums() override { return sums_; }
  Result<const float*> add_and_read(std::uint32_t layer) override {
    add(layer);
    return x_.data();
  }
  Result<kernels::CardStepResult> head(bool add_sums) override {
    if (add_sums) add(static_cast<std::uint32_t>(model_.layers.size()) - 1);
    logits_.clear();
    largest_.clear();
    for (std::uint32_t i = 0; i < size_.n_wanted; ++i) {
      const auto row = times(model_.head, norm(words_[3 * size_.n_rows + i], model_.output_norm));
      logits_.insert(logits_.end(), row.begin(), row.end());
      largest_.push_back(static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    failures_.clear();
    for (std::uint32_t row = 0; row < size_.n_rows; ++row)
      if (codes_[row] != kNone)
        failures_.push_back({row, codes_[row] / 16, static_cast<kernels::CardFailure>(codes_[row] % 16)});
    return kernels::CardStepResult{logits_.data(), largest_, ids_.data(), failures_};
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

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct HeadBlock {
    std::vector<Line> k, v;
  };

  std::size_t stride() const { return (limits_.context + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions; }
  float* x(std::uint32_t row) { return x_.data() + std::size_t{row} * model_.d_model; }
  std::uint32_t position(std::uint32_t row) const { return words_[row]; }
  std::uint32_t block(std::uint32_t row, std::size_t i) const {
    const std::uint32_t table = words_[2 * size_.n_rows + row];
    return words_[3 * size_.n_rows + size_.n_wanted + table * stride() + i];
  }
  HeadBlock& head_block(std::uint32_t number, std::uint32_t layer, std::uint32_t head) {
    HeadBlock& found = cache_[{number, layer, head}];
    const std::size_t bytes = kernels::kKvBlockPositions * kernels::bytes(limits_.kv);
    found.k.resize(bytes * model_.key_dim / sizeof(Line));
    found.v.resize(bytes * model_.value_dim / sizeof(Line));
    return found;
  }
  void fail(std::uint32_t row, std::uint32_t layer, kernels::CardFailure what) {
    codes_[row] = std::min(codes_[row], layer * 16 + static_cast<std::uint32_t>(what));
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
    ops_.rope(head, angles_.data() + row * pairs, angles_.data() + (size_.n_rows + row) * pairs, model_.n_rot,
              model_.pairing);
  }
  void store(std::uint32_t row, std::uint32_t layer, const std::vector<float>& h) {
    const kernels::CardTrunkLayer& weights = model_.layers[layer];
    std::vector<float> k = times(weights.k, h), v = times(weights.v, h);
    q_[row] = times(weights.q, h);
    for (std::uint32_t i = 0; i < model_.n_heads; ++i) rotate(row, weights.q_norm, q_[row].data() + i * model_.key_dim);
    if (!ops_.all_finite(q_[row].data(), q_[row].size())) fail(row, layer, kernels::CardFailure::kQueries);
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
      ops_.attend({.q = q_[row].data() + head * group * model_.key_dim,
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
                   ids_.data() + (layer * size_.n_rows + row) * model_.top_k, weights_.data() + row * model_.top_k);
  }
  void add(std::uint32_t layer) {
    std::vector<float> delta(model_.d_model);
    for (std::uint32_t row = 0; row < size_.n_rows; ++row) {
      if (!ops_.from_fixed(sums_.data() + row * delta.size(), delta.size(), model_.shift, delta.data()))
        fail(row, layer, kernels::CardFailure::kExperts);
      ops_.add(x(row), delta.data(), delta.size());
    }
  }
  Status compute_experts(std::uint32_t layer, const kernels::CardRoutedRows& routed,
                         std::span<const kernels::SlabView> slabs) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::ExpertKernels kernels,
                             kernels::select_expert_kernels(model_.layers[layer].experts, {}, kernels::Isa::kScalar,
                                                            kernels::Activations::kQuantised));
    TERRACE_CHECK(kernels.gate_class() == kernels.up_class(), "the fake trunk makes rows once");
    const std::size_t d = model_.d_model, bytes = row_bytes(kernels.gate_class(), d);
    std::vector<std::byte> rows(size_.n_rows * bytes);
    std::vector<kernels::Pair> pairs;
    for (std::uint32_t row = 0; row < size_.n_rows; ++row) {
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
    std::fill(sums_.begin(), sums_.end(), 0);
    std::vector<std::uint8_t> failed(size_.n_rows);
    const kernels::RowsView view{kernels.gate_class(), rows.data(), bytes};
    const auto slab_of = [&](std::uint16_t expert) { return slabs[expert]; };
    TERRACE_RETURN_IF_ERROR(executor_.run(kernels, slab_of, {view, view, size_.n_rows, pairs},
                                          {sums_.data(), d, model_.shift}, failed, [] { return true; }));
    for (std::uint32_t row = 0; row < size_.n_rows; ++row) {
      if (failed[row] == 0) continue;
      fail(row, layer, kernels::CardFailure::kExperts);
      std::fill_n(sums_.begin() + row * d, d, 0);
    }
    return {};
  }

  const kernels::CardTrunkModel model_;
  const kernels::CardTrunkLimits limits_;
  Serial serial_;
  const kernels::Ops ops_;
  kernels::Executor executor_;
  kernels::CardStepSize size_;
  std::vector<float> x_, h_, angles_, weights_, logits_;
  std::vector<std::int32_t> largest_;
  std::vector<std::uint32_t> words_, codes_;
  std::vector<std::uint16_t> ids_;
  std::vector<std::int64_t> sums_, own_sums_;
  std::span<const kernels::SlabView> slabs_;
  bool is_started_ = false;
  std::map<std::uint32_t, std::vector<float>> q_;  // by row
  std::map<std::array<std::uint32_t, 3>, HeadBlock> cache_;
  std::vector<kernels::CardRowFailure> failures_;
};

}  // namespace terrace::test
