// A node's executor that computes a batch once: one equal to the last is answered from memory, so that a round trip is
// timed with next to nothing of the computing in it, and its sums are true all the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tier_node/service/pair_executor.h"

namespace terrace::test {

// What executors spent on adding remembered sums. Any thread.
struct RememberingTime {
  std::atomic<std::uint64_t> batches = 0, ns = 0;
  double mean_us() const {
    return static_cast<double>(ns) / 1e3 / static_cast<double>(std::max<std::uint64_t>(batches, 1));
  }
};

class RememberingExecutor final : public node::PairExecutor {
 public:
  // All are borrowed and outlive it.
  RememberingExecutor(Parallel& parallel, const kernels::Ops& ops, RememberingTime& time)
      : executor_(node::make_pair_executor(parallel, ops)), time_(time) {}

  Result<kernels::ExecStats> run(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                 const kernels::BatchView& batch, kernels::SumsView sums,
                                 std::span<std::uint8_t> failed,
                                 kernels::Executor::BetweenSlices between_slices) override {
    if (!is_remembered(kernels, slab_of, batch, sums.shift)) {
      kernels_ = nullptr;  // an error leaves nothing to remember
      sums_.assign(batch.n_rows * sums.d_model, 0);
      failed_.assign(batch.n_rows, 0);
      TERRACE_RETURN_IF_ERROR(
          executor_->run(kernels, slab_of, batch, {sums_.data(), sums.d_model, sums.shift}, failed_, between_slices));
      remember(kernels, slab_of, batch, sums.shift);
    }
    const auto start = std::chrono::steady_clock::now();
    add(sums_, sums.data);
    for (std::size_t row = 0; row < failed.size(); ++row) failed[row] |= failed_[row];
    const auto took = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start);
    time_.batches += 1;
    time_.ns += static_cast<std::uint64_t>(took.count());
    return kernels::ExecStats{batch.pairs.size(), static_cast<std::uint64_t>(took.count())};
  }

  Result<kernels::ExecStats> run_slots(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                                       const kernels::BatchView& batch, std::span<float> out,
                                       std::span<std::uint8_t> failed,
                                       kernels::Executor::BetweenSlices between_slices) override {
    return executor_->run_slots(kernels, slab_of, batch, out, failed, between_slices);
  }

 private:
  // Two values at once, however the compiler is told to optimise.
  static void add(std::span<const std::int64_t> from, std::int64_t* to) {
    using Values = std::int64_t __attribute__((vector_size(16)));
    std::size_t i = 0;
    for (; i + 2 <= from.size(); i += 2) {
      Values value, sum;
      std::memcpy(&value, from.data() + i, sizeof value);
      std::memcpy(&sum, to + i, sizeof sum);
      sum += value;
      std::memcpy(to + i, &sum, sizeof sum);
    }
    for (; i < from.size(); ++i) to[i] += from[i];
  }

  // What the sums depend on. A slab is told by where it lies: shares of a bench stay where they are.
  bool is_remembered(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                     const kernels::BatchView& batch, int shift) const {
    const auto same_pair = [&](const kernels::Pair& pair, const Use& use) {
      return pair.row == use.pair.row && pair.weight == use.pair.weight && slab_of(pair.expert).gate == use.gate;
    };
    return kernels_ == &kernels && shift_ == shift && failed_.size() == batch.n_rows &&
           std::equal(batch.pairs.begin(), batch.pairs.end(), uses_.begin(), uses_.end(), same_pair) &&
           same(batch.gate_rows, batch.n_rows, gate_rows_) &&
           (batch.up_rows.data == batch.gate_rows.data || same(batch.up_rows, batch.n_rows, up_rows_));
  }
  void remember(const kernels::ExpertKernels& kernels, kernels::Executor::SlabOf slab_of,
                const kernels::BatchView& batch, int shift) {
    uses_.clear();
    for (const kernels::Pair& pair : batch.pairs) uses_.push_back({pair, slab_of(pair.expert).gate});
    const auto copy = [&](const kernels::RowsView& rows) {
      return std::vector<std::byte>(rows.data, rows.data + batch.n_rows * rows.stride);
    };
    gate_rows_ = copy(batch.gate_rows);
    up_rows_ = copy(batch.up_rows);
    shift_ = shift;
    kernels_ = &kernels;
  }
  static bool same(const kernels::RowsView& rows, std::size_t n_rows, const std::vector<std::byte>& remembered) {
    return remembered.size() == n_rows * rows.stride &&
           std::memcmp(remembered.data(), rows.data, remembered.size()) == 0;
  }

  struct Use {
    kernels::Pair pair;
    const std::byte* gate = nullptr;
  };

  const std::unique_ptr<node::PairExecutor> executor_;
  RememberingTime& time_;
  const kernels::ExpertKernels* kernels_ = nullptr;  // null: nothing is remembered
  int shift_ = 0;
  std::vector<Use> uses_;
  std::vector<std::byte> gate_rows_, up_rows_;
  std::vector<std::int64_t> sums_;    // [rows, d_model]
  std::vector<std::uint8_t> failed_;  // [rows]
};

}  // namespace terrace::test
