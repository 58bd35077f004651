// What tests of matrices times rows on a card share: a matrix and rows there, and each type's scalar reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/activations/activations.h"
#include "kernels/cuda/dense/dense.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "kernels/registry/registry.h"
#include "tests/gpu/card_test.h"
#include "tests/unit/kernels/cpu/weight_rows.h"

namespace terrace::test {

// The scalar kernels of every type.
inline std::vector<kernels::WeightKernels> scalar_kernels() {
  std::vector<kernels::WeightKernels> rows;
  for (const kernels::WeightKernels& row : kernels::all_weight_kernels())
    if (row.isa == kernels::Isa::kScalar) rows.push_back(row);
  return rows;
}

struct Matrix {
  std::uint32_t rows, cols;
};

inline std::string describe(Matrix m, std::size_t n, unsigned seed) {
  return std::to_string(m.rows) + " x " + std::to_string(m.cols) + " by " + std::to_string(n) + " rows, seed " +
         std::to_string(seed);
}

class CardProductsTest : public CardTest {
 protected:
  // The rows as card rows on the card.
  std::byte* upload_x(const kernels::WeightKernels& k, const std::vector<Bytes>& x, std::uint32_t cols) {
    const std::size_t stride = kernels::cuda::card_row_bytes(k.type, cols);
    auto* out = room<std::byte>(x.size() * stride);
    const Status status = kernels::cuda::make_card_rows(
        stream(), {k.activation, upload_rows(x), x[0].size(), static_cast<std::uint32_t>(x.size()), cols, out, stride});
    EXPECT_TRUE(status.ok()) << status.error().text();
    return out;
  }
  // [x.size(), rows]
  static std::vector<float> reference(const kernels::WeightKernels& k, const Bytes& w, const std::vector<Bytes>& x,
                                      Matrix m) {
    std::vector<float> y(x.size() * m.rows);
    k.dot_rows(w.data(), w.size() / m.rows, m.rows, pointers(x).data(), x.size(), m.cols, y.data(), m.rows);
    return y;
  }
  // The first n rows of x.
  std::vector<float> on_card(TensorType type, const std::byte* w, const std::byte* x, Matrix m, std::uint32_t n) {
    float* y = room<float>(std::size_t{n} * m.rows);
    const Status status = kernels::cuda::dense(
        stream(), {type, w, m.rows, m.cols, x, kernels::cuda::card_row_bytes(type, m.cols), n, y, m.rows});
    EXPECT_TRUE(status.ok()) << status.error().text();
    return download(y, std::size_t{n} * m.rows);
  }
  // The same by the kernel for many rows, however few they are.
  std::vector<float> by_kernel_for_many(TensorType type, const std::byte* w, const std::byte* x, Matrix m,
                                        std::uint32_t n) {
    kernels::cuda::GemvArgs args = product(type, x, m);
    args.y = room<float>(std::size_t{n} * m.rows);
    args.gemm_from = 1;
    const Status status = kernels::cuda::gemv_one(stream(), args, {w, 0, n});
    EXPECT_TRUE(status.ok()) << status.error().text();
    return download(args.y, std::size_t{n} * m.rows);
  }
  // All but y.
  static kernels::cuda::GemvArgs product(TensorType type, const std::byte* x, Matrix m) {
    kernels::cuda::GemvArgs args;
    args.type = type;
    args.weight_rows = m.rows;
    args.cols = m.cols;
    args.x = x;
    args.x_stride = kernels::cuda::card_row_bytes(type, m.cols);
    args.y_stride = m.rows;
    return args;
  }
};

}  // namespace terrace::test
