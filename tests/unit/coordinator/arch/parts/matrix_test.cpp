#include "coordinator/arch/parts/matrix.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/registry/registry.h"

namespace terrace::arch {
namespace {

// Like a machine with many cores, on this thread: products are cut into many small pieces.
class ManyWorkers final : public Parallel {
 public:
  explicit ManyWorkers(std::size_t n) : n_(n) {}
  std::size_t n_workers() const override { return n_; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run_in_order(n_items, fn); }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    for (std::size_t i = 0; i < n_items; ++i) fn(i, i % n_);
  }

 private:
  std::size_t n_;
};

constexpr std::uint32_t kSeed = 20260;

struct Weights {
  std::vector<float> values;
  Matrix matrix;
};

Weights random_weights(std::size_t rows, std::size_t cols, std::mt19937& random) {
  Weights w;
  std::normal_distribution<float> normal;
  w.values.resize(rows * cols);
  for (float& value : w.values) value = normal(random);
  w.matrix.kernels = kernels::select_weight_kernels(TensorType::kF32, kernels::detect_cpu_features(), {}).value();
  w.matrix.data = reinterpret_cast<const std::byte*>(w.values.data());
  w.matrix.rows = rows;
  w.matrix.cols = cols;
  w.matrix.row_bytes = cols * sizeof(float);
  return w;
}

// One row of weights and one of activations at a time.
std::vector<float> one_by_one(const Matrix& m, const std::vector<float>& x, std::size_t n_x) {
  std::vector<float> y(n_x * m.rows);
  for (std::size_t j = 0; j < n_x; ++j) {
    const auto* row = reinterpret_cast<const std::byte*>(x.data() + j * m.cols);
    for (std::size_t r = 0; r < m.rows; ++r)
      m.kernels.dot_rows(m.row(r), m.row_bytes, 1, &row, 1, m.cols, &y[j * m.rows + r], m.rows);
  }
  return y;
}

TEST(Multiplier, AnyCut_GivesEveryProductOnce) {
  std::mt19937 random(kSeed);
  const kernels::Ops ops = kernels::select_ops(kernels::detect_cpu_features(), {}).value();
  constexpr std::size_t kCols = 96;
  const Weights a = random_weights(1, kCols, random), b = random_weights(129, kCols, random),
                c = random_weights(1000, kCols, random);
  std::normal_distribution<float> normal;
  for (const std::size_t n_workers : {1, 2, 3, 64, 200})
    for (const std::size_t n_x : {1, 2, 15, 16, 17, 64, 65, 200}) {
      ManyWorkers parallel(n_workers);
      ActivationRows x(parallel, ops);
      Multiplier multiplier(parallel);
      std::vector<float> rows(n_x * kCols);
      for (float& value : rows) value = normal(random);
      x.set(rows.data(), n_x, kCols);
      std::vector<float> ya(n_x * 1), yb(n_x * 129), yc(n_x * 1000);
      const Product products[] = {{&a.matrix, ya.data()}, {&b.matrix, yb.data()}, {&c.matrix, yc.data()}};
      multiplier.run(products, x);
      SCOPED_TRACE(testing::Message() << n_workers << " workers, " << n_x << " rows, seed " << kSeed);
      EXPECT_EQ(ya, one_by_one(a.matrix, rows, n_x));
      EXPECT_EQ(yb, one_by_one(b.matrix, rows, n_x));
      EXPECT_EQ(yc, one_by_one(c.matrix, rows, n_x));
    }
}

TEST(ActivationRows, QuantisedForm_IsMadeOnceAndAnewAfterSet) {
  const kernels::Ops ops = kernels::select_ops(kernels::detect_cpu_features(), {}).value();
  Serial serial;
  ActivationRows x(serial, ops);
  std::vector<float> rows(2 * 64, 1.0f);
  x.set(rows.data(), 2, 64);
  const auto quantised = [&](std::size_t i) {
    return *reinterpret_cast<const float*>(x.in(ActivationClass::kA8x32)[i]);  // d of the first block
  };
  EXPECT_EQ(quantised(1), 1.0f / 127);
  rows.assign(rows.size(), 2.0f);
  EXPECT_EQ(quantised(1), 1.0f / 127);  // asked for again: the same form
  x.set(rows.data(), 2, 64);
  EXPECT_EQ(quantised(1), 2.0f / 127);
  EXPECT_EQ(reinterpret_cast<const float*>(x.in(ActivationClass::kF32)[1]), rows.data() + 64);
}

}  // namespace
}  // namespace terrace::arch
