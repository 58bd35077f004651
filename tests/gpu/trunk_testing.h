// A trunk with random weights on a card, its experts beside it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/experts/open.h"
#include "kernels/cuda/trunk/plan.h"
#include "tests/gpu/card_test.h"
#include "tests/gpu/random_trunk.h"
#include "tests/unit/kernels/executor/test_layer.h"

namespace terrace::test {

class CardTrunkTest : public ::testing::Test {
 protected:
  // Or the test is skipped.
  void open(const TrunkShape& shape, const kernels::CardTrunkLimits& limits, std::uint64_t budget, Slabs kind) {
    auto opened = kernels::cuda::open_expert_card(0, budget);
    if (!opened.ok()) GTEST_SKIP() << "no card: " << opened.error().text();
    card_ = std::move(*opened);
    limits_ = limits;
    model_ = make_model(shape, weights_);
    const auto bytes = card_->trunk_bytes(model_, limits);
    ASSERT_OK(bytes);
    memory_ = card_->slab_memory().first(*bytes);
    auto trunk = card_->make_trunk(model_, limits, memory_, {});
    ASSERT_OK(trunk);
    trunk_ = std::move(*trunk);
    auto slabs = place_slabs(*card_, model_, weights_, card_->slab_memory().subspan(*bytes), kind);
    ASSERT_OK(slabs);
    slabs_ = std::move(*slabs);
  }

  std::vector<float> logits(const Result<kernels::CardStepResult>& result, std::uint32_t n_rows) {
    EXPECT_TRUE(result.ok()) << result.error().text();
    if (!result.ok()) return {};
    EXPECT_TRUE(result->failures.empty());
    EXPECT_EQ(result->largest.size(), n_rows);
    for (std::size_t i = 0; i < result->largest.size(); ++i) {
      const float* const row = result->logits + i * model_.vocabulary;
      EXPECT_EQ(result->largest[i], std::max_element(row, row + model_.vocabulary) - row) << "row " << i;
    }
    return {result->logits, result->logits + std::size_t{n_rows} * model_.vocabulary};
  }

  // A step that has begun, layer by layer, its experts by the executor that legs and nodes use. `planted` is added to
  // one sum of each layer.
  std::vector<float> layers_of_step(std::uint32_t n_rows, std::int64_t planted = 0) {
    const auto executor = card_->make_executor();
    EXPECT_TRUE(executor.ok());
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer) {
      EXPECT_TRUE(trunk_->queue_layer(0, layer, {}).ok());
      const auto routed = trunk_->wait_routed(0);
      EXPECT_TRUE(routed.ok()) << routed.error().text();
      if (!routed.ok()) return {};
      sum_experts(**executor, layer, n_rows, *routed);
      trunk_->sums()[0] += planted;
    }
    return logits(trunk_->head(0), n_rows);
  }
  // Of the part's layer that was queued last. Waits as long as it may take.
  kernels::CardRoutedRows rows_of(std::uint32_t part) {
    for (const auto begin = std::chrono::steady_clock::now();;) {
      const auto routed = trunk_->poll_routed(part);
      EXPECT_TRUE(routed.ok()) << routed.error().text();
      if (!routed.ok()) return {};
      if (routed->has_value()) return **routed;
      const bool waits = std::chrono::steady_clock::now() - begin < std::chrono::seconds(30);
      EXPECT_TRUE(waits) << "rows of part " << part;
      if (!waits) return {};
    }
  }
  // Rows [first, first + n_rows) of x_ in a step of one stream, at the positions of the same numbers.
  void begin_part(std::uint32_t part, std::uint32_t first, std::uint32_t n_rows) {
    const kernels::CardStepSize size{n_rows, 1, n_rows, first + n_rows};
    fill_step(model_, size, std::span(x_).subspan(std::size_t{first} * model_.d_model), trunk_->begin_part(size, part));
  }
  // Such a step cut at `ends`, layer by layer, each part a turn ahead of the one behind it. Others give `given` for
  // each value in each layer.
  std::vector<float> in_parts(const std::vector<std::uint32_t>& ends, std::span<const kernels::SlabView> slabs,
                              std::int64_t given) {
    std::uint32_t first = 0;
    for (std::uint32_t part = 0; part < ends.size(); first = ends[part++]) begin_part(part, first, ends[part] - first);
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer) {
      for (std::uint32_t part = 0; part < ends.size(); ++part)
        EXPECT_TRUE(trunk_->queue_layer(part, layer, slabs).ok());
      for (std::uint32_t part = 0; part < ends.size(); ++part) {
        (void)rows_of(part);
        std::ranges::fill(trunk_->sums_of(part), given);
      }
    }
    std::vector<float> all;
    first = 0;
    for (std::uint32_t part = 0; part < ends.size(); first = ends[part++]) {
      const std::vector<float> own = logits(trunk_->head(part), ends[part] - first);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  void sum_experts(kernels::CardExecutor& executor, std::uint32_t layer, std::uint32_t n_rows,
                   const kernels::CardRoutedRows& routed) {
    const kernels::ExpertShape& shape = model_.layers[layer].experts;
    const Rows rows({routed.rows, routed.rows + std::size_t{n_rows} * model_.d_model}, model_.d_model);
    std::vector<kernels::Pair> pairs;
    for (std::uint32_t i = 0; i < n_rows * model_.top_k; ++i)
      pairs.push_back({static_cast<std::uint16_t>(i / model_.top_k), routed.experts[i], routed.weights[i]});
    std::ranges::stable_sort(pairs, {}, &kernels::Pair::expert);
    const auto k = kernels::select_expert_kernels(shape, {}, kernels::Isa::kScalar, kernels::Activations::kQuantised);
    const auto slab_of = [&](std::uint16_t expert) { return slabs_[layer * model_.n_experts + expert]; };
    std::vector<std::uint8_t> failed(n_rows);
    std::ranges::fill(trunk_->sums(), 0);
    ASSERT_OK(executor.submit(shape, slab_of, rows.batch(*k, pairs), model_.shift));
    ASSERT_OK(executor.collect({trunk_->sums().data(), model_.d_model, model_.shift}, failed, [] { return true; }));
    EXPECT_EQ(failed, std::vector<std::uint8_t>(n_rows, 0));
  }

  enum class Spoiled : std::uint8_t { kStep, kCacheAndStep };
  // What a step's values, or the cache too, lie in: NaN, as earlier steps may leave it anywhere.
  void spoil(Spoiled what) {
    const std::uint64_t cache = kernels::cuda::lay_out_weights(model_, 0).end;
    const std::uint64_t step = kernels::cuda::lay_out_cache(model_, limits_, cache).end;
    const std::span<std::byte> part = memory_.subspan(what == Spoiled::kStep ? step : cache);
    const auto writer = card_->make_writer();
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->write(part.data(), std::vector(part.size(), std::byte{0xff})));
  }

  RandomWeights weights_;
  std::unique_ptr<kernels::ExpertCard> card_;
  kernels::CardTrunkLimits limits_;
  kernels::CardTrunkModel model_;
  std::span<std::byte> memory_;  // the trunk's
  std::unique_ptr<kernels::CardTrunk> trunk_;
  std::vector<kernels::SlabView> slabs_;
  std::vector<float> x_;  // [rows, d_model] of a stream, from its begin
};

}  // namespace terrace::test
