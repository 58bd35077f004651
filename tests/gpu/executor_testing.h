// The executor of a card, and layers whose slabs lie there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/experts/open.h"
#include "tests/gpu/card_test.h"
#include "tests/unit/kernels/executor/test_layer.h"

namespace terrace::test {

inline constexpr unsigned kExecutorSeed = 90210;

class CardExecutorTest : public testing::Test {
 protected:
  // A card with this budget, or the test is skipped.
  void open(std::uint64_t budget) {
    auto opened = kernels::cuda::open_expert_card(0, budget);
    if (!opened.ok()) GTEST_SKIP() << "no card: " << opened.error().text();
    card_ = std::move(*opened);
    executor_ = card_->make_executor().value();
    writer_ = card_->make_writer().value();
  }
  std::byte* upload(const Bytes& bytes) {
    const std::span<std::byte> memory = card_->slab_memory();
    EXPECT_LE(used_ + bytes.size(), memory.size());
    std::byte* const at = memory.data() + used_;
    used_ += (bytes.size() + 255) / 256 * 256;
    const Status written = writer_->write(at, bytes);
    EXPECT_TRUE(written.ok()) << written.error().text();
    return at;
  }
  void upload(const Layer& layer) {
    used_ = 0;
    slabs_.clear();
    for (const Slab& slab : layer.experts) slabs_.push_back({upload(slab.gate), upload(slab.up), upload(slab.down)});
  }
  Outcome compute(const Layer& layer, const Rows& rows, std::span<const kernels::Pair> pairs, int shift = 24) {
    const kernels::ExpertKernels k =
        *kernels::select_expert_kernels(layer.shape, {}, kernels::Isa::kScalar, kernels::Activations::kQuantised);
    const kernels::BatchView batch = rows.batch(k, pairs);
    const auto slab_of = [&](std::uint16_t expert) { return slabs_.at(expert); };
    Outcome out{std::vector<std::int64_t>(rows.size() * layer.shape.d_model),
                std::vector<float>(pairs.size() * layer.shape.d_model), std::vector<std::uint8_t>(rows.size())};
    const Status submitted = executor_->submit(layer.shape, slab_of, batch, shift);
    EXPECT_TRUE(submitted.ok()) << submitted.error().text();
    const auto stats =
        executor_->collect({out.sums.data(), layer.shape.d_model, shift}, out.failed, [] { return true; });
    EXPECT_TRUE(stats.ok()) << stats.error().text();
    EXPECT_EQ(stats->pairs, pairs.size());
    std::vector<std::uint8_t> failed(rows.size());
    EXPECT_TRUE(executor_->run_slots(layer.shape, slab_of, batch, out.slots, failed, [] { return true; }).ok());
    return out;
  }

  Rng rng_{kExecutorSeed};
  std::unique_ptr<kernels::ExpertCard> card_;
  std::unique_ptr<kernels::CardExecutor> executor_;
  std::unique_ptr<kernels::CardWriter> writer_;
  std::uint64_t used_ = 0;
  std::vector<kernels::SlabView> slabs_;
};

}  // namespace terrace::test
