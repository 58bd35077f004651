// How often each expert of each layer was asked for: pairs since the start. One thread counts (the step's), any reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::legs {

class ExpertUse {
 public:
  ExpertUse(std::uint32_t n_layers, std::uint32_t n_experts)
      : n_experts_(n_experts), pairs_(std::size_t{n_layers} * n_experts) {}

  // The counting thread's. A plain load, addition and store: nothing is locked, and nobody else writes.
  void add(std::uint32_t layer, std::uint32_t expert, std::uint64_t pairs) {
    std::atomic<std::uint64_t>& count = pairs_[std::size_t{layer} * n_experts_ + expert];
    count.store(count.load(std::memory_order_relaxed) + pairs, std::memory_order_relaxed);
  }

  // Any thread. Each count is right for some moment; those of a step that runs may be of it or not.
  std::uint64_t pairs(std::uint32_t layer, std::uint32_t expert) const {
    return pairs_[std::size_t{layer} * n_experts_ + expert].load(std::memory_order_relaxed);
  }

 private:
  std::size_t n_experts_;
  std::vector<std::atomic<std::uint64_t>> pairs_;  // [n_layers, n_experts]
};

}  // namespace terrace::legs
