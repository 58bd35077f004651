// The rows of one step as the parts of a trunk share them: where each stands, and which have failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/parallel.h"
#include "coordinator/arch/trunk.h"

namespace terrace::arch {

// fn(row, worker) for each row; a single row on the calling thread, without waking anyone.
template <class Fn>
void for_each_row(Parallel& parallel, std::size_t n_rows, const Fn& fn) {
  if (n_rows == 1) {
    fn(std::size_t{0}, std::size_t{0});
    return;
  }
  parallel.run(n_rows, fn);
}

// Where rows have failed. A failed row is computed on, over zeros in the place of what was not finite, so that the
// rows beside it need not move; what it gives is never used.
class RowFailures {
 public:
  static constexpr std::uint32_t kNoLayer = ~std::uint32_t{0};

  void reset(std::size_t n_rows);
  bool failed(std::size_t row) const { return first_[row].what != nullptr; }
  // Zeroes values[0, n) and notes the row's failure, unless it has one already. `what` is a literal: "router logits".
  // Distinct rows may be set from distinct threads.
  void fail(std::size_t row, std::uint32_t layer, const char* what, float* values, std::size_t n);
  // The same for the sum over a row's experts: legs say which row failed, so the error names all experts of the row.
  void fail_experts(std::size_t row, std::uint32_t layer, std::span<const std::uint16_t> experts, float* values,
                    std::size_t n);
  // "position 12 of stream 0: the router logits of layer 3 are not finite"
  Error error(std::size_t row, const StepRow& at) const;

 private:
  struct First {
    std::uint32_t layer = kNoLayer;
    const char* what = nullptr;
    std::vector<std::uint16_t> experts;  // where it was one of these
  };
  std::vector<First> first_;
};

}  // namespace terrace::arch
