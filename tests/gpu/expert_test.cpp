// Whole experts on a card, from quantised rows to integer sums: the sums that the scalar kernels give pair by pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/combine/combine.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "tests/gpu/card_test.h"
#include "tests/unit/kernels/executor/test_layer.h"

namespace terrace::kernels::cuda {
namespace {

using test::Layer;
using test::Rows;

constexpr unsigned kSeed = 20279;
constexpr TensorType kQ4_K = TensorType::kQ4_K, kQ6_K = TensorType::kQ6_K, kQ8_0 = TensorType::kQ8_0;

// A layer's pairs on the card: what a card's leg will do in one step.
class CardExperts : public test::CardTest {
 protected:
  void prepare(const ExpertShape& shape, std::size_t n_experts, std::size_t n_rows, std::size_t top_k) {
    layer_.emplace(Layer::random(shape, n_experts, rng_));
    rows_.emplace(Rows::random(n_rows, shape.d_model, rng_));
    pairs_ = test::random_pairs(n_rows, n_experts, top_k, rng_);
    top_k_ = static_cast<std::uint32_t>(top_k);
    n_rows_ = static_cast<std::uint32_t>(n_rows);
    upload_groups();
    const std::size_t n = pairs_.size();
    gate_ = room<float>(n * shape.ff);
    up_ = room<float>(n * shape.ff);
    out_ = room<float>(n * shape.d_model);
    h_bytes_ = card_row_bytes(shape.down, shape.ff);
    h_ = room<std::byte>(n * h_bytes_);
    gate_x_ = upload_x(shape.gate);
    up_x_ = upload_x(shape.up);
    failed_ = upload(std::vector<std::uint8_t>(n_rows, 0));
    sums_ = upload(std::vector<std::int64_t>(n_rows * shape.d_model, 0));
  }

  void upload_groups() {
    std::vector<GemvGroup> gate, up, down;
    std::vector<std::uint32_t> x_rows;
    std::vector<std::vector<std::int32_t>> slots(n_rows_);
    std::vector<std::vector<float>> weights(n_rows_);
    for (std::uint32_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (i == 0 || pair.expert != pairs_[i - 1].expert) {
        const test::Slab& slab = layer_->experts[pair.expert];
        gate.push_back({upload(slab.gate), i, 0});
        up.push_back({upload(slab.up), i, 0});
        down.push_back({upload(slab.down), i, 0});
      }
      largest_ = std::max(largest_, ++gate.back().n);
      up.back().n = down.back().n = gate.back().n;
      x_rows.push_back(pair.row);
      slots[pair.row].push_back(static_cast<std::int32_t>(i));
      weights[pair.row].push_back(pair.weight);
    }
    gate_groups_ = upload(gate);
    up_groups_ = upload(up);
    down_groups_ = upload(down);
    n_groups_ = static_cast<std::uint32_t>(gate.size());
    x_rows_ = upload(x_rows);
    std::vector<std::int32_t> flat_slots;
    std::vector<float> flat_weights;
    for (std::uint32_t row = 0; row < n_rows_; ++row) {
      flat_slots.insert(flat_slots.end(), slots[row].begin(), slots[row].end());
      flat_weights.insert(flat_weights.end(), weights[row].begin(), weights[row].end());
    }
    slots_ = upload(flat_slots);
    weights_ = upload(flat_weights);
  }

  std::byte* upload_x(TensorType type) {
    const RowsView view = rows_->view(gemv_activation(type));
    const std::size_t stride = card_row_bytes(type, layer_->shape.d_model);
    auto* out = room<std::byte>(rows_->size() * stride);
    const std::byte* wire = upload(std::span<const std::byte>(view.data, rows_->size() * view.stride));
    const Status status =
        make_card_rows(stream(), {view.activation, wire, view.stride, n_rows_, layer_->shape.d_model, out, stride});
    EXPECT_TRUE(status.ok()) << status.error().text();
    return out;
  }

  GemvArgs product(TensorType type, const GemvGroup* groups, std::uint32_t weight_rows, std::uint32_t cols,
                   const std::byte* x, float* y) const {
    GemvArgs args;
    args.type = type;
    args.weight_rows = weight_rows;
    args.cols = cols;
    args.groups = groups;
    args.n_groups = n_groups_;
    args.max_rows = largest_;
    args.x = x;
    args.x_stride = card_row_bytes(type, cols);
    args.y = y;
    args.y_stride = weight_rows;
    return args;
  }

  Status queue_gate_and_up() {
    const ExpertShape& shape = layer_->shape;
    GemvArgs gate = product(shape.gate, gate_groups_, shape.ff, shape.d_model, gate_x_, gate_);
    GemvArgs up = product(shape.up, up_groups_, shape.ff, shape.d_model, up_x_, up_);
    gate.x_rows = up.x_rows = x_rows_;
    TERRACE_RETURN_IF_ERROR(expert_gemv(stream(), gate));
    return expert_gemv(stream(), up);
  }

  Status queue() {
    const ExpertShape& shape = layer_->shape;
    const auto n = static_cast<std::uint32_t>(pairs_.size());
    TERRACE_RETURN_IF_ERROR(queue_gate_and_up());
    TERRACE_RETURN_IF_ERROR(silu_mul(stream(), gate_, up_, std::size_t{n} * shape.ff, gate_));
    TERRACE_RETURN_IF_ERROR(mark_not_finite(stream(), {gate_, shape.ff, n, shape.ff, x_rows_, failed_}));
    TERRACE_RETURN_IF_ERROR(
        quantize_card_rows(stream(), {gemv_activation(shape.down), gate_, shape.ff, n, shape.ff, h_, h_bytes_}));
    TERRACE_RETURN_IF_ERROR(
        expert_gemv(stream(), product(shape.down, down_groups_, shape.d_model, shape.ff, h_, out_)));
    return add_fixed(stream(),
                     {out_, shape.d_model, slots_, weights_, top_k_, n_rows_, shape.d_model, 24, sums_, failed_});
  }

  std::vector<std::int64_t> sums() { return download(sums_, std::size_t{n_rows_} * layer_->shape.d_model); }

  test::Rng rng_{kSeed};
  std::optional<Layer> layer_;
  std::optional<Rows> rows_;
  std::vector<Pair> pairs_;
  std::uint32_t n_rows_ = 0, top_k_ = 0, n_groups_ = 0, largest_ = 0;
  GemvGroup *gate_groups_ = nullptr, *up_groups_ = nullptr, *down_groups_ = nullptr;
  std::uint32_t* x_rows_ = nullptr;
  std::int32_t* slots_ = nullptr;
  float *weights_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *out_ = nullptr;
  std::byte *gate_x_ = nullptr, *up_x_ = nullptr, *h_ = nullptr;
  std::size_t h_bytes_ = 0;
  std::uint8_t* failed_ = nullptr;
  std::int64_t* sums_ = nullptr;
};

TEST_F(CardExperts, SumsOfALayersPairs_EqualTheScalarKernels) {
  const ExpertShape shapes[] = {{kQ4_K, kQ4_K, kQ6_K, 2048, 768},
                                {kQ4_K, kQ8_0, TensorType::kQ4_0, 512, 320},
                                {TensorType::kQ3_K, TensorType::kQ3_K, TensorType::kQ5_K, 512, 256},
                                {TensorType::kF32, TensorType::kBF16, TensorType::kF16, 160, 96}};
  for (const ExpertShape& shape : shapes)
    for (const std::size_t n_rows : {1, 5, 40}) {
      largest_ = 0;
      prepare(shape, 12, n_rows, 4);
      ASSERT_OK(queue());
      const test::Outcome right = test::expected(*layer_, *rows_, pairs_, 24);
      EXPECT_EQ(sums(), right.sums) << info(shape.gate).name << ", rows " << n_rows << ", seed " << kSeed;
      EXPECT_EQ(download(failed_, n_rows), right.failed);
    }
}

// The product that makes its rows itself, with what a row that is not finite leaves behind.
TEST_F(CardExperts, DownOfGateAndUp_EqualsSiluQuantiseAndProduct) {
  for (const TensorType down : {kQ4_K, TensorType::kQ5_K, kQ6_K})
    for (const std::size_t n_rows : {1, 3}) {
      largest_ = 0;
      prepare({kQ4_K, kQ4_K, down, 512, 768}, 8, n_rows, 4);
      const ExpertShape& shape = layer_->shape;
      ASSERT_OK(queue());
      const auto expected = download(out_, pairs_.size() * shape.d_model);
      ExpertDownArgs args;
      args.down = product(down, down_groups_, shape.d_model, shape.ff, nullptr, room<float>(expected.size()));
      args.gate = gate_;
      args.up = up_;
      args.failure_rows = x_rows_;
      args.code = 9;
      args.failures = upload(std::vector<std::uint32_t>(n_rows, kNoFailure));
      const auto has = has_expert_down(stream(), args.down);
      ASSERT_OK(has);
      ASSERT_TRUE(*has);
      ASSERT_OK(queue_gate_and_up());
      ASSERT_OK(expert_down(stream(), args));
      EXPECT_EQUAL_FLOATS(download(args.down.y, expected.size()), expected, info(down).name);
      EXPECT_THAT(download(args.failures, n_rows), ::testing::Each(kNoFailure));
      const float nan = std::numeric_limits<float>::quiet_NaN();
      ASSERT_OK(stream().copy_to_card(up_ + shape.ff + 700, &nan, sizeof nan));  // of pair 1
      ASSERT_OK(expert_down(stream(), args));
      const auto failures = download(args.failures, n_rows);
      for (std::uint32_t row = 0; row < n_rows; ++row) EXPECT_EQ(failures[row], row == pairs_[1].row ? 9 : kNoFailure);
    }
}

TEST_F(CardExperts, AGraphsReplay_EqualsEagerCalls) {
  prepare({kQ4_K, kQ4_K, kQ6_K, 512, 256}, 8, 3, 4);
  ASSERT_OK(queue());
  const std::vector<std::int64_t> eager = sums();
  auto graph = Graph::capture(stream(), [&] { return queue(); });
  ASSERT_OK(graph);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(stream().fill(sums_, 0, eager.size() * sizeof eager[0]));
    ASSERT_OK(graph->launch(stream()));
    EXPECT_EQ(sums(), eager);
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
