// The executor that legs and nodes use, on a card: the sums and outputs of the scalar kernels, however a batch is cut.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/gpu/executor_testing.h"

namespace terrace::kernels::cuda {
namespace {

using test::Layer;
using test::Rows;

constexpr unsigned kSeed = test::kExecutorSeed;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
using test::CardExecutorTest;
constexpr TensorType kQ4_K = TensorType::kQ4_K, kQ6_K = TensorType::kQ6_K, kQ8_0 = TensorType::kQ8_0;

TEST_F(CardExecutorTest, SumsAndOutputs_EqualTheScalarKernels) {
  open(1024 * kMiB);
  if (IsSkipped()) return;
  const ExpertShape shapes[] = {{kQ4_K, kQ4_K, kQ6_K, 2048, 768},
                                {kQ4_K, kQ8_0, TensorType::kQ4_0, 512, 320},
                                {TensorType::kQ3_K, TensorType::kQ3_K, TensorType::kQ5_K, 512, 256},
                                {TensorType::kF32, TensorType::kBF16, TensorType::kF16, 160, 96}};
  for (const ExpertShape& shape : shapes) {
    const Layer layer = Layer::random(shape, 12, rng_);
    upload(layer);
    for (const std::size_t n_rows : {1, 2, 5, 9, 40}) {
      SCOPED_TRACE(testing::Message() << info(shape.gate).name << ", rows " << n_rows << ", seed " << kSeed);
      const Rows rows = Rows::random(n_rows, shape.d_model, rng_);
      const std::vector<Pair> pairs = test::random_pairs(n_rows, 12, 4, rng_);
      const test::Outcome right = test::expected(layer, rows, pairs, 24);
      const test::Outcome got = compute(layer, rows, pairs);
      EXPECT_EQ(got.sums, right.sums);
      EXPECT_EQ(got.failed, right.failed);
      EXPECT_EQUAL_FLOATS(got.slots, right.slots, "slots");
    }
  }
}

// 16 MiB leave a workspace of 2: a batch of so many rows is many slices.
TEST_F(CardExecutorTest, ASmallWorkspace_CutsTheBatch_SameSums) {
  open(16 * kMiB);
  if (IsSkipped()) return;
  const Layer layer = Layer::random({kQ4_K, kQ4_K, kQ6_K, 512, 256}, 16, rng_);
  upload(layer);
  for (const std::size_t n_rows : {64, 200}) {
    const Rows rows = Rows::random(n_rows, 512, rng_);
    const std::vector<Pair> pairs = test::random_pairs(n_rows, 16, 8, rng_);
    const test::Outcome right = test::expected(layer, rows, pairs, 30);
    const test::Outcome got = compute(layer, rows, pairs, 30);
    EXPECT_EQ(got.sums, right.sums) << "seed " << kSeed;
    EXPECT_EQUAL_FLOATS(got.slots, right.slots, "slots");
  }
}

// Small batches are captured once a size: other rows, experts, weights and layers replay them.
TEST_F(CardExecutorTest, BatchesOfDecoding_ReplayWithOtherExperts_SameSums) {
  open(512 * kMiB);
  if (IsSkipped()) return;
  const Layer layers[] = {Layer::random({kQ4_K, kQ4_K, kQ6_K, 512, 256}, 16, rng_),
                          Layer::random({kQ4_K, kQ4_K, kQ4_K, 512, 256}, 16, rng_)};
  for (int round = 0; round < 6; ++round)
    for (const Layer& layer : layers) {
      upload(layer);
      for (const std::size_t n_rows : {1, 2, 1})
        for (const std::size_t n_used : {1, 3, 8}) {
          SCOPED_TRACE(testing::Message() << "round " << round << ", rows " << n_rows << ", seed " << kSeed);
          const Rows rows = Rows::random(n_rows, 512, rng_);
          const std::vector<Pair> pairs = test::random_pairs(n_rows, 16, n_used, rng_);
          // SHIFT is a part of what is captured. (At a larger one some of these outputs leave the range.)
          const int shift = round % 2 == 0 ? 24 : 18;
          const test::Outcome right = test::expected(layer, rows, pairs, shift);
          const test::Outcome got = compute(layer, rows, pairs, shift);
          ASSERT_EQ(right.failed, std::vector<std::uint8_t>(n_rows, 0));
          EXPECT_EQ(got.failed, right.failed);
          EXPECT_EQ(got.sums, right.sums);
        }
    }
}

TEST_F(CardExecutorTest, ARowThatLeavesTheRange_FailsAlone) {
  open(64 * kMiB);
  if (IsSkipped()) return;
  const Layer layer = Layer::random({TensorType::kF32, TensorType::kF32, TensorType::kF32, 64, 32}, 4, rng_);
  upload(layer);
  std::vector<float> x(3 * 64, 0.25f);
  std::fill_n(x.begin() + 64, 64, 3e18f);  // row 1: its products are beyond every range
  const Rows rows(x, 64);
  const std::vector<Pair> pairs = {{0, 0, 0.5f}, {1, 1, 0.5f}, {2, 1, 0.5f}, {0, 3, 0.5f}};
  const test::Outcome right = test::expected(layer, rows, pairs, 24);
  const test::Outcome got = compute(layer, rows, pairs);
  EXPECT_EQ(got.failed, (std::vector<std::uint8_t>{0, 1, 0}));
  EXPECT_EQ(got.failed, right.failed);
  for (const std::size_t row : {0, 2})
    EXPECT_TRUE(
        std::equal(got.sums.begin() + row * 64, got.sums.begin() + (row + 1) * 64, right.sums.begin() + row * 64))
        << "row " << row;
}

TEST_F(CardExecutorTest, TwoExecutorsOfTwoThreads_DoNotDisturbEachOther) {
  open(512 * kMiB);
  if (IsSkipped()) return;
  const Layer layer = Layer::random({kQ4_K, kQ4_K, kQ6_K, 512, 256}, 16, rng_);
  upload(layer);
  const Rows rows = Rows::random(33, 512, rng_);
  const std::vector<Pair> pairs = test::random_pairs(33, 16, 8, rng_);
  const test::Outcome right = test::expected(layer, rows, pairs, 24);
  const auto second = card_->make_executor().value();
  const ExpertKernels k = *select_expert_kernels(layer.shape, {}, Isa::kScalar, Activations::kQuantised);
  const auto work = [&](CardExecutor& executor, bool& equal) {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::int64_t> sums(right.sums.size());
      std::vector<std::uint8_t> failed(33);
      equal = equal &&
              executor
                  .submit(
                      layer.shape, [&](std::uint16_t e) { return slabs_.at(e); }, rows.batch(k, pairs), 24)
                  .ok() &&
              executor.collect({sums.data(), 512, 24}, failed, [] { return true; }).ok() && sums == right.sums;
    }
  };
  bool first_equal = true, second_equal = true;
  std::thread other([&] { work(*second, second_equal); });
  work(*executor_, first_equal);
  other.join();
  EXPECT_TRUE(first_equal);
  EXPECT_TRUE(second_equal);
}

// A trunk's products, of several types at once; 16 MiB leave a workspace of 2, so 300 rows are many parts.
TEST_F(CardExecutorTest, DenseProducts_EqualTheScalarKernels) {
  for (const std::uint64_t budget : {16 * kMiB, 512 * kMiB}) {
    executor_.reset();
    writer_.reset();
    card_.reset();
    open(budget);
    if (IsSkipped()) return;
    const auto multiplier = card_->make_multiplier().value();
    Serial serial;
    for (const std::size_t n_rows : {1, 3, 9, 300}) {
      SCOPED_TRACE(testing::Message() << "rows " << n_rows << ", budget " << budget << ", seed " << kSeed);
      used_ = 0;
      std::normal_distribution<float> bell(0.0f, 1.0f);
      std::vector<float> x(n_rows * 512);
      for (float& value : x) value = bell(rng_);
      const Rows rows(x, 512);
      const std::pair<TensorType, std::uint32_t> matrices[] = {{kQ4_K, 300}, {kQ8_0, 64}, {kQ6_K, 33}};
      std::vector<CardProduct> products;
      std::vector<std::vector<float>> expected, found;
      for (const auto& [type, n] : matrices) {
        const test::Bytes w = test::random_weights(type, n, 512, rng_);
        const WeightKernels kernels = *select_weight_kernels(type, {}, Isa::kScalar);
        std::vector<float>& right = expected.emplace_back(n_rows * n);
        for (std::size_t j = 0; j < n_rows; ++j) {
          const std::byte* const row = rows.view(kernels.activation).row(j);
          kernels.dot_rows(w.data(), row_bytes(type, 512), n, &row, 1, 512, right.data() + j * n, n);
        }
        found.emplace_back(n_rows * n, -1.0f);
        products.push_back({type, upload(w), n, 512, nullptr});
      }
      for (std::size_t i = 0; i < products.size(); ++i) products[i].y = found[i].data();
      ASSERT_OK(multiplier->run(products, x.data(), n_rows, serial));
      for (std::size_t i = 0; i < products.size(); ++i)
        EXPECT_EQUAL_FLOATS(found[i], expected[i], info(products[i].type).name);
    }
  }
}

// All types that the CPU computes can lie on a card; one budget is taken once, and what is more is refused by numbers.
TEST_F(CardExecutorTest, WhatItCannotHoldOrCompute_IsRefusedByName) {
  open(64 * kMiB);
  if (IsSkipped()) return;
  for (const WeightKernels& kernels : all_weight_kernels())
    EXPECT_TRUE(card_->check({kernels.type, kernels.type, kernels.type, 2048, 768}).ok()) << info(kernels.type).name;
  EXPECT_EQ(card_->check({TensorType::kI8, kQ4_K, kQ4_K, 2048, 768}).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(card_->check({kQ4_K, kQ4_K, kQ4_K, 1u << 22, 256}).error().code(), ErrorCode::kOutOfMemory);
  const auto too_much = open_expert_card(0, card_->facts().total_bytes + 4096);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().code(), ErrorCode::kOutOfMemory);
  const auto absent = open_expert_card(99, std::nullopt);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace terrace::kernels::cuda
