// Matrices times rows on a card against each type's scalar reference, by ==.
#include "kernels/cuda/expert_gemv/expert_gemv.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/gpu/gemv_testing.h"

namespace terrace::kernels::cuda {
namespace {

using test::Bytes;
using test::Matrix;
using test::Rng;

constexpr unsigned kSeed = 20271;

std::string type_name(const testing::TestParamInfo<WeightKernels>& param) {
  return std::string(info(param.param.type).name);
}
std::string describe(Matrix m, std::size_t n) { return test::describe(m, n, kSeed); }

class CardGemv : public test::CardProductsTest, public testing::WithParamInterface<WeightKernels> {
 protected:
  TensorType type() const { return GetParam().type; }
  ActivationClass activation() const { return GetParam().activation; }
  std::byte* upload_x(const std::vector<Bytes>& x, std::uint32_t cols) {
    return CardProductsTest::upload_x(GetParam(), x, cols);
  }
  std::vector<float> reference(const Bytes& w, const std::vector<Bytes>& x, Matrix m) const {
    return CardProductsTest::reference(GetParam(), w, x, m);
  }
  std::vector<float> by_kernel_for_many(const std::byte* w, const std::byte* x, Matrix m, std::uint32_t n) {
    return CardProductsTest::by_kernel_for_many(type(), w, x, m, n);
  }
  std::vector<float> on_card(const Bytes& w, const std::vector<Bytes>& x, Matrix m) {
    return CardProductsTest::on_card(type(), upload(w), upload_x(x, m.cols), m, static_cast<std::uint32_t>(x.size()));
  }
};

TEST_P(CardGemv, SmallAndOddShapes_EqualReference) {
  Rng rng(kSeed);
  const std::uint32_t block = std::max(info(type()).block_values, 1u);
  for (std::uint32_t n_blocks = 1; n_blocks <= 9; ++n_blocks) {
    const std::uint32_t cols = block == 1 ? 16 * n_blocks + 3 * (n_blocks % 4) : block * n_blocks;
    for (const std::uint32_t rows : {1, 2, 7, 31, 33, 131}) {
      const Bytes w = test::random_weights(type(), rows, cols, rng);
      for (const std::size_t n : {1, 3, 9}) {
        const auto x = test::random_activations(activation(), n, cols, rng);
        EXPECT_EQUAL_FLOATS(on_card(w, x, {rows, cols}), reference(w, x, {rows, cols}), describe({rows, cols}, n));
      }
    }
  }
}

TEST_P(CardGemv, AnyNumberOfRowsByTheKernelForMany_EqualsReference) {
  if (activation() == ActivationClass::kA8x32) return;  // these types have no such kernel
  Rng rng(kSeed);
  const Matrix odd{1, activation() == ActivationClass::kF32 ? 75u : 256u};
  for (const Matrix m : {Matrix{768, 2048}, Matrix{67, 768}, odd}) {
    const Bytes w = test::random_weights(type(), m.rows, m.cols, rng);
    const auto x = test::random_activations(activation(), 193, m.cols, rng);
    const std::vector<float> expected = reference(w, x, m);
    const std::byte* card_w = upload(w);
    const std::byte* card_x = upload_x(x, m.cols);
    for (const std::uint32_t n : {1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 112, 113, 127, 128, 129, 193}) {
      const std::span<const float> first(expected.data(), std::size_t{n} * m.rows);
      EXPECT_EQUAL_FLOATS(by_kernel_for_many(card_w, card_x, m, n), first, describe(m, n));
    }
  }
}

TEST_P(CardGemv, EdgeBlocks_EqualReference) {
  Rng rng(kSeed);
  const std::uint32_t block = info(type()).block_values;
  const Matrix m{37, block == 1 ? 80 : 3 * block};
  for (const test::WeightEdge& edge : test::kWeightEdges) {
    const Bytes w = test::edge_weights(type(), m.rows, m.cols, edge, rng);
    const auto x = test::random_activations(activation(), 7, m.cols, rng);
    const std::vector<float> expected = reference(w, x, m);
    EXPECT_EQUAL_FLOATS(on_card(w, x, m), expected, std::string(edge.name) + ", " + describe(m, 7));
    if (activation() != ActivationClass::kA8x32)
      EXPECT_EQUAL_FLOATS(by_kernel_for_many(upload(w), upload_x(x, m.cols), m, 7), expected,
                          std::string(edge.name) + ", for many, " + describe(m, 7));
  }
}

TEST_P(CardGemv, LongRows_EqualReference) {
  Rng rng(kSeed);
  const std::uint32_t block = info(type()).block_values;
  for (const std::uint32_t cols : {12288u, 256u * 81}) {
    const Matrix m{5, cols / block * block};
    const Bytes w = test::random_weights(type(), m.rows, m.cols, rng);
    const auto x = test::random_activations(activation(), 5, m.cols, rng);
    EXPECT_EQUAL_FLOATS(on_card(w, x, m), reference(w, x, m), describe(m, 5));
  }
}

// Groups of different sizes in one launch, an empty one among them, rows of x in another order.
TEST_P(CardGemv, GroupsInOneLaunch_EqualEachAlone) {
  Rng rng(kSeed);
  const Matrix m{96, 512};
  const std::uint32_t sizes[] = {2, 0, 1, 9, 3, 130};
  const std::uint32_t n_total = std::accumulate(std::begin(sizes), std::end(sizes), 0u);
  const auto x = test::random_activations(activation(), n_total, m.cols, rng);
  std::vector<std::uint32_t> x_rows(n_total);
  std::iota(x_rows.begin(), x_rows.end(), 0u);
  std::shuffle(x_rows.begin(), x_rows.end(), rng);
  std::vector<GemvGroup> groups;
  std::vector<float> expected;
  std::uint32_t first = 0;
  for (const std::uint32_t n : sizes) {
    const Bytes w = test::random_weights(type(), m.rows, m.cols, rng);
    groups.push_back({upload(w), first, n});
    std::vector<Bytes> own;
    for (std::uint32_t i = 0; i < n; ++i) own.push_back(x[x_rows[first + i]]);
    const std::vector<float> y = reference(w, own, m);
    expected.insert(expected.end(), y.begin(), y.end());
    first += n;
  }
  GemvArgs args = product(type(), upload_x(x, m.cols), m);
  args.groups = upload(groups);
  args.n_groups = static_cast<std::uint32_t>(groups.size());
  args.max_rows = 130;
  args.x_rows = upload(x_rows);
  for (const std::uint32_t gemm_from : {1u, ~0u}) {
    args.gemm_from = gemm_from;
    args.y = room<float>(n_total * m.rows);
    ASSERT_OK(expert_gemv(stream(), args));
    EXPECT_EQUAL_FLOATS(download(args.y, n_total * m.rows), expected, describe(m, n_total));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CardGemv, testing::ValuesIn(test::scalar_kernels()), type_name);

class CardGemvErrors : public test::CardTest {};

TEST_F(CardGemvErrors, ATypeWithoutAKernel_IsNamed) {
  GemvArgs args;
  args.type = TensorType::kIQ1_M;
  const Status status = gemv_one(stream(), args, {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().text(), testing::HasSubstr("IQ1_M"));
}

// The gate itself: one wrong bit in one weight is seen.
TEST_F(CardGemvErrors, OneFlippedWeightBit_IsCaught) {
  Rng rng(kSeed);
  const Matrix m{64, 512};
  Bytes w = test::random_weights(TensorType::kQ4_K, m.rows, m.cols, rng);
  const auto x = test::random_activations(ActivationClass::kA8x256, 1, m.cols, rng);
  std::vector<float> expected(m.rows);
  const auto reference = select_weight_kernels(TensorType::kQ4_K, {}, Isa::kScalar)->dot_rows;
  reference(w.data(), w.size() / m.rows, m.rows, test::pointers(x).data(), 1, m.cols, expected.data(), m.rows);
  w[w.size() - 1] ^= std::byte{1};
  float* y = room<float>(m.rows);
  const std::size_t stride = card_row_bytes(TensorType::kQ4_K, m.cols);
  auto* card_x = room<std::byte>(stride);
  ASSERT_OK(
      make_card_rows(stream(), {ActivationClass::kA8x256, upload_rows(x), x[0].size(), 1, m.cols, card_x, stride}));
  ASSERT_OK(dense(stream(), {TensorType::kQ4_K, upload(w), m.rows, m.cols, card_x, stride, 1, y, m.rows}));
  EXPECT_EQ(test::first_unequal(download(y, m.rows), expected), m.rows - 1);
}

}  // namespace
}  // namespace terrace::kernels::cuda
