// What a card's thread makes of a block, compiled for this machine, against the type's scalar reference by ==.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/cuda/weights/k_types.h"
#include "kernels/cuda/weights/small_types.h"
#include "kernels/registry/registry.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::kernels::cuda {
namespace {

using test::Bytes;
using test::Rng;

constexpr unsigned kSeed = 20269;
constexpr std::size_t kBlocks = 5;

template <class Type>
constexpr TensorType kTensorType = TensorType::kF32;
template <>
constexpr TensorType kTensorType<Q8_0> = TensorType::kQ8_0;
template <>
constexpr TensorType kTensorType<Q4_0> = TensorType::kQ4_0;
template <>
constexpr TensorType kTensorType<Q3K> = TensorType::kQ3_K;
template <>
constexpr TensorType kTensorType<Q4K> = TensorType::kQ4_K;
template <>
constexpr TensorType kTensorType<Q5K> = TensorType::kQ5_K;
template <>
constexpr TensorType kTensorType<Q6K> = TensorType::kQ6_K;

// One row of x as the card has it.
template <class Type>
class CardRow {
 public:
  explicit CardRow(const Bytes& row) {
    constexpr std::uint32_t kCols = kBlocks * Type::kValues;
    const CardRowLayout at = card_row_layout(Type::kValues, kCols);
    view_ = {bytes_, at.bytes, at.d, Type::kXSumValues == 16 ? at.sums16 : at.sums32};
    std::int16_t sums[kCols / Type::kXSumValues] = {};
    for (std::uint32_t i = 0; i < kCols; ++i) {
      const std::byte q = row[i / Type::kValues * (Type::kValues + 4) + 4 + i % Type::kValues];
      bytes_[i] = static_cast<std::uint8_t>(q);
      sums[i / Type::kXSumValues] =
          static_cast<std::int16_t>(sums[i / Type::kXSumValues] + static_cast<std::int8_t>(q));
    }
    for (std::size_t c = 0; c < kBlocks; ++c)
      std::memcpy(bytes_ + at.d + c * sizeof(float), &row[c * (Type::kValues + 4)], sizeof(float));
    std::memcpy(bytes_ + view_.sums_offset, sums, sizeof sums);
  }
  const CardRows& view() const { return view_; }

 private:
  alignas(16) std::uint8_t bytes_[card_row_layout(Type::kValues, kBlocks* Type::kValues).bytes] = {};
  CardRows view_{};
};

// The row's dot by the card's arithmetic, the blocks at `shift` bytes behind a multiple of 16.
template <class Type>
float dot(const Bytes& row, const Bytes& x, std::size_t shift) {
  const CardRow<Type> card_x(x);
  alignas(16) std::array<std::uint8_t, kBlocks * Type::kBlockBytes + 32> place{};
  std::memcpy(place.data() + shift, row.data(), row.size());
  float sum = 0.0f;
  for (std::uint32_t c = 0; c < kBlocks; ++c)
    sum = sum + Type::value(place.data() + shift + c * Type::kBlockBytes, card_x.view(), c);
  return sum;
}

template <class Type>
void expect_equals_reference(const Bytes& row, const std::vector<Bytes>& x, std::size_t shift, const char* what) {
  const auto reference = select_weight_kernels(kTensorType<Type>, {}, Isa::kScalar)->dot_rows;
  std::vector<float> expected(x.size());
  reference(row.data(), row.size(), 1, test::pointers(x).data(), x.size(), kBlocks * Type::kValues, expected.data(), 1);
  for (std::size_t j = 0; j < x.size(); ++j) {
    const float got = dot<Type>(row, x[j], shift);
    EXPECT_TRUE(got == expected[j] || (std::isnan(got) && std::isnan(expected[j])))
        << what << ", row " << j << ", shift " << shift << ", seed " << kSeed << ": " << got << ", reference "
        << expected[j];
  }
}

template <class Type>
class CudaBlock : public testing::Test {};
using Types = testing::Types<Q8_0, Q4_0, Q3K, Q4K, Q5K, Q6K>;
TYPED_TEST_SUITE(CudaBlock, Types);

TYPED_TEST(CudaBlock, RandomAndEdgeBlocks_EqualTheScalarReference) {
  const TensorType type = kTensorType<TypeParam>;
  const auto activation = select_weight_kernels(type, {}, Isa::kScalar)->activation;
  const std::size_t cols = kBlocks * TypeParam::kValues;
  Rng rng(kSeed);
  // Types whose blocks are multiples of 16 bytes always lie at such, the others at any even place.
  const std::size_t step = TypeParam::kBlockBytes % 16 == 0 ? 16 : 2;
  for (std::size_t shift = 0; shift < 16; shift += step) {
    const auto x = test::random_activations(activation, 8, cols, rng);
    const Bytes w = test::random_weights(type, 1, cols, rng);
    expect_equals_reference<TypeParam>(w, x, shift, "random");
    for (const test::WeightEdge& edge : test::kWeightEdges)
      expect_equals_reference<TypeParam>(test::edge_weights(type, 1, cols, edge, rng), x, shift, edge.name);
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
