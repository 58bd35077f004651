// Every variant of every type in the registry against the type's scalar reference, by ==. A new type or ISA is picked
// up from the registry's table.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "kernels/registry/registry.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::kernels {
namespace weight_kernels_test {

using test::Bytes;
using test::Rng;

// One call of dot_rows.
struct Problem {
  const Bytes& w;               // n_weight_rows rows
  const std::vector<Bytes>& x;  // n_x rows or more
  std::size_t n_weight_rows;
  std::size_t n_x;
  std::size_t cols;
};

constexpr float kUntouched = -12345.5f;

// y [n_x, n_weight_rows + 3]: the gap behind each row must stay as it was.
std::vector<float> run(DotRowsFn dot_rows, const Problem& p) {
  const std::size_t stride = p.n_weight_rows + 3;
  std::vector<float> y(p.n_x * stride, kUntouched);
  dot_rows(p.w.data(), p.w.size() / p.n_weight_rows, p.n_weight_rows, test::pointers(p.x).data(), p.n_x, p.cols,
           y.data(), stride);
  return y;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The gate: where `kernel` first differs from `reference`, or nothing.
std::optional<std::string> first_mismatch(DotRowsFn kernel, DotRowsFn reference, const Problem& p) {
  const std::vector<float> got = run(kernel, p);
  const std::vector<float> expected = run(reference, p);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (same(got[i], expected[i])) continue;
    const std::size_t stride = p.n_weight_rows + 3;
    char text[160];
    std::snprintf(text, sizeof text, "x row %zu of %zu, weight row %zu of %zu, %zu columns: %a, reference %a",
                  i / stride, p.n_x, i % stride, p.n_weight_rows, p.cols, got[i], expected[i]);
    return text;
  }
  return std::nullopt;
}

DotRowsFn reference_of(TensorType type) { return select_weight_kernels(type, {}, Isa::kScalar)->dot_rows; }

std::string kernel_name(const testing::TestParamInfo<WeightKernels>& param) { return param.param.kernel_name; }

class WeightDots : public testing::TestWithParam<WeightKernels> {
 protected:
  const WeightKernels& kernels() const { return GetParam(); }
  // Rows of `n` blocks; for types whose block is one value, n * 16 values and some more.
  std::size_t cols_of(std::size_t n_blocks) const {
    const std::size_t block = info(kernels().type).block_values;
    return block == 1 ? 16 * n_blocks + 3 * (n_blocks % 4) : block * n_blocks;
  }
  void SetUp() override {
    if (!detect_cpu_features().has(kernels().isa)) GTEST_SKIP() << "this CPU lacks " << name(kernels().isa);
  }
  void expect_equals_reference(const Problem& p, const std::string& what) {
    const auto mismatch = first_mismatch(kernels().dot_rows, reference_of(kernels().type), p);
    EXPECT_FALSE(mismatch) << what << ": " << *mismatch;
  }
};

constexpr unsigned kSeed = 20261;
std::string with_seed(const std::string& what) { return what + ", seed " + std::to_string(kSeed); }

TEST_P(WeightDots, RandomBlocks_EqualReferenceAtEveryShape) {
  Rng rng(kSeed);
  for (std::size_t n_blocks = 1; n_blocks <= 8; ++n_blocks) {
    const std::size_t cols = cols_of(n_blocks);
    for (const std::size_t n_weight_rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
      const Bytes w = test::random_weights(kernels().type, n_weight_rows, cols, rng);
      const auto x = test::random_activations(kernels().activation, 9, cols, rng);
      for (std::size_t n_x = 1; n_x <= 9; ++n_x)
        expect_equals_reference({w, x, n_weight_rows, n_x, cols}, with_seed("random"));
    }
  }
}

TEST_P(WeightDots, ManyRows_EqualReference) {
  Rng rng(kSeed);
  const std::size_t cols = cols_of(3), n_weight_rows = 131;  // more than two panels
  const Bytes w = test::random_weights(kernels().type, n_weight_rows, cols, rng);
  const auto x = test::random_activations(kernels().activation, 65, cols, rng);
  for (const std::size_t n_x : {1, 2, 3, 16, 17, 64, 65})
    expect_equals_reference({w, x, n_weight_rows, n_x, cols}, with_seed("many rows"));
}

TEST_P(WeightDots, LongRows_EqualReference) {
  Rng rng(kSeed);
  const std::size_t block = info(kernels().type).block_values;
  const std::size_t cols = 256 * 161 / block * block, n_weight_rows = 3;  // 41216: several spans and a rest
  const Bytes w = test::random_weights(kernels().type, n_weight_rows, cols, rng);
  const auto x = test::random_activations(kernels().activation, 5, cols, rng);
  for (const std::size_t n_x : {1, 2, 5})
    expect_equals_reference({w, x, n_weight_rows, n_x, cols}, with_seed("long rows"));
}

TEST_P(WeightDots, EdgeBlocks_EqualReference) {
  Rng rng(kSeed);
  for (const test::WeightEdge& edge : test::kWeightEdges) {
    const std::size_t cols = cols_of(3), n_weight_rows = 5;
    const Bytes w = test::edge_weights(kernels().type, n_weight_rows, cols, edge, rng);
    const auto x = test::random_activations(kernels().activation, 7, cols, rng);
    for (const std::size_t n_x : {1, 2, 7})
      expect_equals_reference({w, x, n_weight_rows, n_x, cols}, with_seed(edge.name));
  }
}

// P4, stated directly: a result does not change with the rows beside it.
TEST_P(WeightDots, AResult_DoesNotDependOnItsNeighbours) {
  Rng rng(kSeed);
  const std::size_t cols = cols_of(5), n_weight_rows = 7, n_x = 6;
  const Bytes w = test::random_weights(kernels().type, n_weight_rows, cols, rng);
  const auto x = test::random_activations(kernels().activation, n_x, cols, rng);
  const std::vector<float> together = run(kernels().dot_rows, {w, x, n_weight_rows, n_x, cols});
  const std::size_t row_size = w.size() / n_weight_rows;
  for (std::size_t r = 0; r < n_weight_rows; ++r) {
    const Bytes row(w.begin() + static_cast<std::ptrdiff_t>(r * row_size),
                    w.begin() + static_cast<std::ptrdiff_t>((r + 1) * row_size));
    for (std::size_t j = 0; j < n_x; ++j)
      EXPECT_EQ(run(kernels().dot_rows, {row, {x[j]}, 1, 1, cols})[0], together[j * (n_weight_rows + 3) + r]);
  }
}

// Memory whose last byte is followed by a page that may not be touched: a tensor may end where its mapping ends.
class GuardedCopy {
 public:
  explicit GuardedCopy(const Bytes& bytes) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (bytes.size() + page - 1) / page * page;
    size_ = used + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + used, page, PROT_NONE) != 0) throw std::runtime_error("mmap failed");
    data_ = base_ + used - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  GuardedCopy(const GuardedCopy&) = delete;
  GuardedCopy& operator=(const GuardedCopy&) = delete;
  ~GuardedCopy() { munmap(base_, size_); }
  const std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

TEST_P(WeightDots, RowsAtTheEndOfAMapping_AreNotReadBeyond) {
  Rng rng(kSeed);
  for (const std::size_t n_blocks : {1, 2, 5}) {
    const std::size_t cols = cols_of(n_blocks), n_weight_rows = 3;
    const Bytes w = test::random_weights(kernels().type, n_weight_rows, cols, rng);
    const auto x = test::random_activations(kernels().activation, 1, cols, rng);
    const GuardedCopy w_end(w), x_end(x[0]);
    const std::byte* x_row = x_end.data();
    std::vector<float> y(n_weight_rows);
    kernels().dot_rows(w_end.data(), w.size() / n_weight_rows, n_weight_rows, &x_row, 1, cols, y.data(), n_weight_rows);
    const std::vector<float> elsewhere = run(kernels().dot_rows, {w, x, n_weight_rows, 1, cols});
    EXPECT_TRUE(std::equal(y.begin(), y.end(), elsewhere.begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightDots, testing::ValuesIn(all_weight_kernels().begin(), all_weight_kernels().end()),
                         kernel_name);

// A kernel that is right but for the lowest bit of one result in a tile.
void wrong_by_one_bit(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows, const std::byte* const* x,
                      std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  reference_of(TensorType::kQ4_K)(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
  float& victim = y[(n_x - 1) * y_stride + n_weight_rows - 1];
  victim = std::nextafter(victim, 1e30f);
}

// A kernel that writes one result too many.
void writes_beyond(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows, const std::byte* const* x,
                   std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  reference_of(TensorType::kQ4_K)(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
  y[n_weight_rows] = 0;
}

TEST(WeightDotsGate, PlantedWrongKernel_IsCaught) {
  Rng rng(kSeed);
  const std::size_t cols = 512, n_weight_rows = 5, n_x = 3;
  const Bytes w = test::random_weights(TensorType::kQ4_K, n_weight_rows, cols, rng);
  const auto x = test::random_activations(ActivationClass::kA8x256, n_x, cols, rng);
  const Problem problem{w, x, n_weight_rows, n_x, cols};
  const DotRowsFn reference = reference_of(TensorType::kQ4_K);
  EXPECT_FALSE(first_mismatch(reference, reference, problem));
  const auto mismatch = first_mismatch(wrong_by_one_bit, reference, problem);
  ASSERT_TRUE(mismatch);
  EXPECT_NE(mismatch->find("x row 2 of 3, weight row 4 of 5"), std::string::npos) << *mismatch;
  EXPECT_TRUE(first_mismatch(writes_beyond, reference, problem));
}

}  // namespace weight_kernels_test
}  // namespace terrace::kernels
