#include "tests/unit/kernels/cpu/ops/ops_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/cpu/isa_names.h"
#include "tests/unit/kernels/cpu/ops/ops_testing.h"

namespace terrace {
namespace {

using kernels::Ops;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::uint32_t kSeed = 20117;

class OpsComparison : public testing::TestWithParam<Ops> {};

TEST_P(OpsComparison, RandomAndEdgeInputs_EqualScalar) {
  EXPECT_THAT(test::compare_tables(test::scalar_ops(), GetParam(), kSeed), IsEmpty()) << "seed " << kSeed;
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsComparison, testing::ValuesIn(test::tables_of_this_machine()),
                         [](const auto& param_info) { return test::isa_identifier(param_info.param.isa); });

// Each planted operation is right but for one small thing.
struct Planted {
  const char* operation;
  void (*plant)(Ops&);
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.operation; }

class PlantedWrongOp : public testing::TestWithParam<Planted> {};

TEST_P(PlantedWrongOp, IsCaught) {
  Ops wrong = test::scalar_ops();
  GetParam().plant(wrong);
  const std::string_view operation = GetParam().operation;
  EXPECT_THAT(test::compare_tables(test::scalar_ops(), wrong, kSeed, operation), ElementsAre(StartsWith(operation)));
}

void sum_in_one_chain(const float* x, const float* w, std::size_t n, float eps, float* y) {
  float sum = 0;  // one chain instead of 16 lanes
  for (std::size_t i = 0; i < n; ++i) sum = std::fma(x[i], x[i], sum);
  const float r = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

std::size_t last_of_equal_ones(const float* x, std::size_t n) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < n; ++i)
    if (x[i] >= x[best]) best = i;
  return best;
}

void exp_of_the_library(const float* x, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = std::exp(std::fmin(std::fmax(x[i], -87.0f), 88.0f));
}

bool round_down(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums) {
  for (std::size_t i = 0; i < n; ++i) {
    const float t = weight * out[i];
    if (!(std::fabs(t) < std::ldexp(1.0f, 51 - shift))) return false;
    sums[i] += static_cast<std::int64_t>(std::floor(std::ldexp(static_cast<double>(t), shift)));
  }
  return true;
}

void forget_the_last_key(const kernels::AttentionArgs& args) {
  kernels::AttentionArgs fewer = args;
  if (fewer.n_keys == 1025) --fewer.n_keys;
  test::scalar_ops().attend(fewer);
}

void merge_in_falling_order(const kernels::AttentionArgs& args, float* states) {
  const std::size_t n = kernels::attention_splits(args.n_keys);
  const std::size_t stride = kernels::attention_state_floats(args.n_heads, args.value_dim);
  std::vector<float> reversed;
  for (std::size_t i = n; i-- > 0;) reversed.insert(reversed.end(), states + i * stride, states + (i + 1) * stride);
  test::scalar_ops().merge_splits(args, reversed.data());
}

void contract_rope(float* x, const float* c, const float* s, std::size_t n_rot, kernels::RopePairing pairing) {
  if (pairing == kernels::RopePairing::kNeox) return test::scalar_ops().rope(x, c, s, n_rot, pairing);
  for (std::size_t p = 0; p < n_rot / 2; ++p) {
    const float x0 = x[2 * p], x1 = x[2 * p + 1];
    x[2 * p] = std::fma(x0, c[p], -(x1 * s[p]));
    x[2 * p + 1] = std::fma(x0, s[p], x1 * c[p]);
  }
}

void truncate_to_f16(const float* v, std::size_t dim, std::size_t slot, kernels::KvType type, std::byte* block) {
  std::vector<float> cut(v, v + dim);
  if (type == kernels::KvType::kF16)
    for (float& x : cut) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & ~0x1fffu);
  test::scalar_ops().store_v(cut.data(), dim, slot, type, block);
}

bool miss_infinity(const float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    if (std::isnan(x[i])) return false;
  return true;
}

INSTANTIATE_TEST_SUITE_P(Ops, PlantedWrongOp,
                         testing::Values(Planted{"rms_norm", [](Ops& ops) { ops.rms_norm = sum_in_one_chain; }},
                                         Planted{"largest", [](Ops& ops) { ops.largest = last_of_equal_ones; }},
                                         Planted{"exp", [](Ops& ops) { ops.exp = exp_of_the_library; }},
                                         Planted{"add_fixed", [](Ops& ops) { ops.add_fixed = round_down; }},
                                         Planted{"attend", [](Ops& ops) { ops.attend = forget_the_last_key; }},
                                         Planted{"attend_splits",
                                                 [](Ops& ops) { ops.merge_splits = merge_in_falling_order; }},
                                         Planted{"rope", [](Ops& ops) { ops.rope = contract_rope; }},
                                         Planted{"store_v", [](Ops& ops) { ops.store_v = truncate_to_f16; }},
                                         Planted{"all_finite", [](Ops& ops) { ops.all_finite = miss_infinity; }}),
                         [](const auto& param_info) { return std::string(param_info.param.operation); });

}  // namespace
}  // namespace terrace
