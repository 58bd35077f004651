// A layer's experts of Qwen3-30B-A3B on a card, in every type: 128 experts, 8 of them a row, for rows 1 to 9, 64, 65
// and 512. The int64 sums and each pair's outputs are those of the scalar kernels.
#include <gmock/gmock.h>

#include "tests/gpu/executor_testing.h"
#include "tests/gpu/large_model.h"

namespace terrace::kernels::cuda {
namespace {

using test::Layer;
using test::Rows;
namespace large = test::large_model;

constexpr std::uint64_t kBudget = std::uint64_t{1} << 30;
constexpr std::size_t kDistinctSlabs = 13, kDistinctRows = 31;
constexpr int kShift = 24;

// Slabs and rows repeat, as many as prime numbers, so that the reference computes each (row, slab) once; which expert
// a pair has, its weight and its place in the batch are its own.
class Reference {
 public:
  Reference(const ExpertShape& shape, test::Rng& rng)
      : layer_(Layer::random(shape, kDistinctSlabs, rng)), x_(kDistinctRows * shape.d_model) {
    std::normal_distribution<float> bell(0.0f, 0.05f);
    for (float& value : x_) value = bell(rng);
    std::vector<Pair> all;
    for (std::uint16_t row = 0; row < kDistinctRows; ++row)
      for (std::uint16_t slab = 0; slab < kDistinctSlabs; ++slab) all.push_back({row, slab, 1.0f});
    outputs_ = test::expected(layer_, Rows(x_, shape.d_model), all, kShift).slots;
  }
  const Layer& layer() const { return layer_; }
  Rows rows(std::size_t n) const {
    std::vector<float> x;
    for (std::size_t row = 0; row < n; ++row) {
      const auto at = x_.begin() + static_cast<std::ptrdiff_t>(row % kDistinctRows * width());
      x.insert(x.end(), at, at + static_cast<std::ptrdiff_t>(width()));
    }
    return Rows(std::move(x), width());
  }
  test::Outcome expected(std::span<const Pair> pairs, std::size_t n_rows) const {
    test::Outcome all{std::vector<std::int64_t>(n_rows * width()), {}, std::vector<std::uint8_t>(n_rows)};
    for (const Pair& pair : pairs) {
      const std::size_t made = pair.row % kDistinctRows * kDistinctSlabs + pair.expert % kDistinctSlabs;
      const std::span<const float> out(outputs_.data() + made * width(), width());
      if (!all_ops().front().add_fixed(pair.weight, out.data(), width(), kShift, &all.sums[pair.row * width()]))
        all.failed[pair.row] = 1;
      all.slots.insert(all.slots.end(), out.begin(), out.end());
    }
    return all;
  }

 private:
  std::size_t width() const { return layer_.shape.d_model; }

  Layer layer_;
  std::vector<float> x_;
  std::vector<float> outputs_;  // [kDistinctRows, kDistinctSlabs, d_model]
};

using Types = std::array<TensorType, 3>;  // of gate, up and down

std::vector<Types> all_types() {
  std::vector<Types> all = {{TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K}};  // half of Q4_K_M's layers
  for (const WeightKernels& k : all_weight_kernels())
    if (k.isa == Isa::kScalar) all.push_back({k.type, k.type, k.type});
  return all;
}
std::string types_name(const testing::TestParamInfo<Types>& param) {
  return std::string(info(param.param[0]).name) + "_" + std::string(info(param.param[2]).name);
}

class CardLargeExperts : public test::CardExecutorTest, public testing::WithParamInterface<Types> {};

TEST_P(CardLargeExperts, AnyNumberOfRows_EqualsTheScalarKernels) {
  open(kBudget);
  if (IsSkipped()) return;
  const auto [gate, up, down] = GetParam();
  const Reference reference({gate, up, down, large::kWidth, large::kExpertWidth}, rng_);
  upload(reference.layer());
  for (std::size_t expert = kDistinctSlabs; expert < large::kExperts; ++expert)
    slabs_.push_back(slabs_[expert % kDistinctSlabs]);
  for (const std::uint32_t n_rows : large::kRows) {
    SCOPED_TRACE(testing::Message() << "rows " << n_rows << ", seed " << test::kExecutorSeed);
    const Rows rows = reference.rows(n_rows);
    const std::vector<Pair> pairs = test::random_pairs(n_rows, large::kExperts, large::kTopK, rng_);
    const test::Outcome right = reference.expected(pairs, n_rows);
    const test::Outcome got = compute(reference.layer(), rows, pairs, kShift);
    EXPECT_TRUE(got.sums == right.sums);
    EXPECT_EQ(got.failed, right.failed);
    EXPECT_EQUAL_FLOATS(got.slots, right.slots, "slots");
  }
}

INSTANTIATE_TEST_SUITE_P(All, CardLargeExperts, testing::ValuesIn(all_types()), types_name);

}  // namespace
}  // namespace terrace::kernels::cuda
