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

// Rows of x apart, as the kernel stages them.
template <class Type>
class StagedRows {
 public:
  explicit StagedRows(const std::vector<Bytes>& rows) {
    constexpr std::size_t kCols = kBlocks * Type::kValues, kSums = kCols / Type::kXSumValues;
    view_.d_offset = kCols;
    view_.sums_offset = kCols + (kBlocks * sizeof(float) + 15) / 16 * 16;
    view_.stride = static_cast<std::uint32_t>((view_.sums_offset + kSums * sizeof(std::int16_t) + 15) / 16 * 16);
    bytes_.resize(rows.size() * view_.stride);
    for (std::size_t j = 0; j < rows.size(); ++j) stage(rows[j], &bytes_[j * view_.stride]);
    view_.base = bytes_.data();
  }
  const XRows& view() const { return view_; }

 private:
  void stage(const Bytes& row, std::uint8_t* to) {
    std::vector<std::int16_t> sums(kBlocks * Type::kValues / Type::kXSumValues);
    for (std::size_t i = 0; i < kBlocks * Type::kValues; ++i) {
      const std::byte q = row[i / Type::kValues * (Type::kValues + 4) + 4 + i % Type::kValues];
      to[i] = static_cast<std::uint8_t>(q);
      sums[i / Type::kXSumValues] += static_cast<std::int8_t>(q);
    }
    for (std::size_t c = 0; c < kBlocks; ++c)
      std::memcpy(to + view_.d_offset + c * sizeof(float), &row[c * (Type::kValues + 4)], sizeof(float));
    std::memcpy(to + view_.sums_offset, sums.data(), sums.size() * sizeof sums[0]);
  }

  std::vector<std::uint8_t> bytes_;
  XRows view_{};
};

// The row's dots by the card's arithmetic, the blocks at `shift` bytes behind a multiple of 16.
template <class Type, int J>
std::array<float, J> dots(const Bytes& row, const std::vector<Bytes>& x, std::size_t shift) {
  const StagedRows<Type> staged(x);
  alignas(16) std::array<std::uint8_t, kBlocks * Type::kBlockBytes + 32> place{};
  std::memcpy(place.data() + shift, row.data(), row.size());
  std::array<float, J> sums{};
  for (std::uint32_t c = 0; c < kBlocks; ++c) {
    float v[J];
    Type::template values<J>(place.data() + shift + c * Type::kBlockBytes, staged.view(), c, v);
    for (int j = 0; j < J; ++j) sums[j] = sums[j] + v[j];
  }
  return sums;
}

template <class Type, int J>
void expect_equals_reference(const Bytes& row, const std::vector<Bytes>& x, std::size_t shift, const char* what) {
  const auto reference = select_weight_kernels(kTensorType<Type>, {}, Isa::kScalar)->dot_rows;
  std::array<float, J> expected{};
  reference(row.data(), row.size(), 1, test::pointers(x).data(), J, kBlocks * Type::kValues, expected.data(), 1);
  const std::array<float, J> got = dots<Type, J>(row, x, shift);
  for (int j = 0; j < J; ++j)
    EXPECT_TRUE(got[j] == expected[j] || (std::isnan(got[j]) && std::isnan(expected[j])))
        << what << ", row " << j << " of " << J << ", shift " << shift << ", seed " << kSeed << ": " << got[j]
        << ", reference " << expected[j];
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
    expect_equals_reference<TypeParam, 1>(w, x, shift, "random");
    expect_equals_reference<TypeParam, 8>(w, x, shift, "random");
    for (const test::WeightEdge& edge : test::kWeightEdges)
      expect_equals_reference<TypeParam, 8>(test::edge_weights(type, 1, cols, edge, rng), x, shift, edge.name);
  }
}

}  // namespace
}  // namespace terrace::kernels::cuda
