// Dense matrices of a trunk and their products with activation rows (docs/numerics.md 3, 8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/card/expert_card.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/weight_kernels.h"

namespace terrace::arch {

// One weight matrix where it lies in the file's mapping. Borrows it.
struct Matrix {
  const std::byte* data = nullptr;
  std::size_t rows = 0;       // outputs
  std::size_t cols = 0;       // inputs
  std::size_t row_bytes = 0;  // rows lie without gaps
  kernels::WeightKernels kernels;
  // The class in which it meets its rows: that of its type, or kF32 where activations are not quantised.
  ActivationClass activation = ActivationClass::kF32;
  const std::byte* on_card = nullptr;  // the same bytes in a card's memory, where a card computes its products

  std::uint64_t bytes() const { return std::uint64_t{rows} * row_bytes; }
  const std::byte* row(std::size_t i) const { return data + i * row_bytes; }
  // True if products run over the dequantised row because the type's own class is not used.
  bool dequantises() const { return activation != kernels.activation; }
};

// Copies the matrices into `memory` of the card, each at a multiple of 256 bytes, and notes where. They fit there.
// kInternal: the card failed; names it.
Status copy_to_card(std::span<Matrix* const> matrices, kernels::ExpertCard& card, std::span<std::byte> memory);

// Activation rows in the classes that matrices want them in, each made once, when first asked for. Memory grows to
// the largest use and is kept. One owner thread.
class ActivationRows {
 public:
  ActivationRows(Parallel& parallel, const kernels::Ops& ops) : parallel_(parallel), ops_(ops) {}

  // From now on the rows [n_rows, cols], finite; borrowed until the next set().
  void set(const float* rows, std::size_t n_rows, std::size_t cols);
  std::size_t n_rows() const { return n_rows_; }
  std::size_t cols() const { return cols_; }
  const float* rows() const { return rows_; }

  // [n_rows] pointers to the rows in this class, valid until the next set(). cols is a multiple of its block.
  const std::byte* const* in(ActivationClass activation);

 private:
  struct Form {
    bool made = false;
    std::vector<std::byte> bytes;
    std::vector<const std::byte*> rows;
  };

  Parallel& parallel_;
  const kernels::Ops& ops_;
  const float* rows_ = nullptr;
  std::size_t n_rows_ = 0;
  std::size_t cols_ = 0;
  std::array<Form, kActivationClasses> forms_;
};

// y[j * matrix->rows + r] = W[r] . x[j]: [n_rows, matrix->rows], overwritten.
struct Product {
  const Matrix* matrix = nullptr;
  float* y = nullptr;
};

// Computes products, cut into chunks of weight rows and tiles of activation rows over the workers, or on a card where
// their matrices lie there. The bits do not depend on where and how (P1, P4). One owner thread.
class Multiplier {
 public:
  // card: null without one; borrowed.
  explicit Multiplier(Parallel& parallel, kernels::CardMultiplier* card = nullptr);

  static constexpr std::size_t kMaxProducts = 4;
  // All products of the same rows in one parallel run; at most kMaxProducts.
  void run(std::span<const Product> products, ActivationRows& x);
  // The card's first failure: since then its products are undefined.
  const Status& status() const { return status_; }

 private:
  void run_here(std::span<const Product> products, ActivationRows& x);
  void run_on_card(std::span<const Product> products, const ActivationRows& x);

  Parallel& parallel_;
  std::vector<std::vector<float>> dequantised_;  // one weight row a worker
  kernels::CardMultiplier* card_;
  Status status_;
};

}  // namespace terrace::arch
