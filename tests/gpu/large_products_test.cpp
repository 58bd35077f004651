// The products of Qwen3-30B-A3B's trunk and experts on a card, in every type, against each type's scalar reference by
// ==, for rows 1 to 9, 64, 65 and 512. Large matrices repeat some of their rows, as many as a prime number, so that the
// reference computes those alone and a kernel that takes another row is still seen.
#include <gmock/gmock.h>

#include <cmath>
#include <tuple>

#include "tests/gpu/gemv_testing.h"
#include "tests/gpu/large_model.h"

namespace terrace::kernels::cuda {
namespace {

using test::Bytes;
using test::Matrix;
using test::Rng;
namespace large = test::large_model;

constexpr unsigned kLargeSeed = 20287;

struct Product {
  const char* name;
  Matrix matrix;
  std::uint32_t distinct_rows;
};
constexpr Product kProducts[] = {
    {"Queries", {large::kQueries, large::kWidth}, 1021},
    {"Keys", {large::kKeys, large::kWidth}, large::kKeys},
    {"Output", {large::kWidth, large::kQueries}, 509},
    {"Router", {large::kExperts, large::kWidth}, large::kExperts},
    {"GateAndUp", {large::kExpertWidth, large::kWidth}, large::kExpertWidth},
    {"Down", {large::kWidth, large::kExpertWidth}, 1021},
    {"Head", {large::kVocabulary, large::kWidth}, 1021},
};

// A matrix on the card, and what the reference makes of its distinct rows.
struct Placed {
  const std::byte* w = nullptr;
  Matrix matrix;
  std::uint32_t distinct_rows = 0;
  std::vector<float> expected;  // [rows of x, distinct_rows]
};

class LargeProductsTest : public test::CardProductsTest {
 protected:
  Placed place(const WeightKernels& k, const Product& product, const std::vector<Bytes>& x) {
    const Matrix distinct{product.distinct_rows, product.matrix.cols};
    const Bytes w = test::random_weights(k.type, distinct.rows, distinct.cols, rng_);
    const std::size_t row = w.size() / distinct.rows, bytes = row * product.matrix.rows;
    auto* at = room<std::byte>(bytes);
    EXPECT_TRUE(stream().copy_to_card(at, w.data(), w.size()).ok());
    for (std::size_t done = w.size(); done < bytes; done += w.size())
      EXPECT_TRUE(stream().copy_on_card(at + done, at, std::min(w.size(), bytes - done)).ok());
    return {at, product.matrix, distinct.rows, reference(k, w, x, distinct)};
  }
  static void expect_reference(const std::vector<float>& got, const Placed& placed, std::uint32_t n,
                               const std::string& what) {
    ASSERT_EQ(got.size(), std::size_t{n} * placed.matrix.rows);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t row = i / placed.matrix.rows, column = i % placed.matrix.rows % placed.distinct_rows;
      const float right = placed.expected[row * placed.distinct_rows + column];
      ASSERT_TRUE(got[i] == right || (std::isnan(got[i]) && std::isnan(right)))
          << what << ", row " << row << ", weight row " << i % placed.matrix.rows << ": " << std::hexfloat << got[i]
          << ", reference " << right;
    }
  }

  Rng rng_{kLargeSeed};
};

using Case = std::tuple<WeightKernels, Product>;
std::string case_name(const testing::TestParamInfo<Case>& info_of) {
  return std::string(info(std::get<0>(info_of.param).type).name) + "_" + std::get<1>(info_of.param).name;
}

class CardLargeProducts : public LargeProductsTest, public testing::WithParamInterface<Case> {};

TEST_P(CardLargeProducts, AnyNumberOfRows_EqualsReference) {
  const auto& [k, product] = GetParam();
  const auto x = test::random_activations(k.activation, large::kMostRows, product.matrix.cols, rng_);
  const Placed placed = place(k, product, x);
  const std::byte* card_x = upload_x(k, x, product.matrix.cols);
  const bool has_kernel_for_many = k.activation != ActivationClass::kA8x32;
  const std::uint64_t used = card().used_bytes();
  for (const std::uint32_t n : large::kRows) {
    const std::string what = test::describe(placed.matrix, n, kLargeSeed);
    expect_reference(on_card(k.type, placed.w, card_x, placed.matrix, n), placed, n, what);
    if (has_kernel_for_many)
      expect_reference(by_kernel_for_many(k.type, placed.w, card_x, placed.matrix, n), placed, n, "for many, " + what);
    card().release_to(used);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CardLargeProducts,
                         testing::Combine(testing::ValuesIn(test::scalar_kernels()), testing::ValuesIn(kProducts)),
                         case_name);

// Q, K and V: what a layer hands to gemv_together().
class CardLargeProductsTogether : public LargeProductsTest {
 protected:
  void expect_together(const std::array<TensorType, 3>& types) {
    std::vector<Placed> placed;
    std::vector<const std::byte*> card_x;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const WeightKernels k = *select_weight_kernels(types[i], {}, Isa::kScalar);
      const Product& product = kProducts[i == 0 ? 0 : 1];
      const auto x = test::random_activations(k.activation, large::kMostRows, large::kWidth, rng_);
      placed.push_back(place(k, product, x));
      card_x.push_back(upload_x(k, x, large::kWidth));
    }
    const std::uint64_t used = card().used_bytes();
    for (const std::uint32_t n : large::kRows) {
      std::vector<GemvOfMany> together;
      for (std::size_t i = 0; i < types.size(); ++i) {
        GemvArgs args = product(types[i], card_x[i], placed[i].matrix);
        args.y = room<float>(std::size_t{n} * args.weight_rows);
        together.push_back({args, {placed[i].w, 0, n}});
      }
      ASSERT_OK(gemv_together(stream(), together));
      for (std::size_t i = 0; i < types.size(); ++i)
        expect_reference(download(together[i].args.y, std::size_t{n} * placed[i].matrix.rows), placed[i], n,
                         std::string(info(types[i]).name) + ", product " + std::to_string(i) + " of three, " +
                             test::describe(placed[i].matrix, n, kLargeSeed));
      card().release_to(used);
    }
  }
};

TEST_F(CardLargeProductsTogether, QueriesKeysAndValuesInOneLaunch_EqualReference) {
  expect_together({TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K});
}

TEST_F(CardLargeProductsTogether, OfOtherTypesInOneLaunch_EqualReference) {
  expect_together({TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kQ5_K});
}

// Not all of them have a kernel for several: each is a launch of its own.
TEST_F(CardLargeProductsTogether, OfTypesThatShareNoLaunch_EqualReference) {
  expect_together({TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kF16});
}

}  // namespace
}  // namespace terrace::kernels::cuda
