// One slice of a batch: some consecutive pairs, computed in one run over the workers. First come the items of
//
//   gate and up  h[pair, chunk of ff] = SILU(gate . x) * (up . x)       expert x chunk of ff; who ends an expert's last
//                and h[pair] in down's class                            chunk quantises its pairs
//
// then, each waiting for the experts' h as it comes to them,
//
//   down         out[pair, chunk of d_model] = down . h, then added     chunk of d_model, over all experts, so that no
//                into the sums                                          two workers meet in one row's sums
#pragma once

#include "kernels/executor/executor.h"
#include "kernels/executor/grown.h"

namespace terrace::kernels {

// Where outputs go: weighted into sums, or each to its slot.
struct ExpertOutputs {
  SumsView sums;           // if slots is null
  float* slots = nullptr;  // [n_pairs of the slice, d_model]
};

class Executor::Slice {
 public:
  Slice(Parallel& parallel, const Ops& ops) : parallel_(parallel), ops_(ops) {}

  // Scratch that a slice needs for each of its pairs at the most: all of them may be one expert's.
  static std::uint64_t bytes_a_pair(const ExpertKernels& kernels, std::size_t n_workers);

  // Computes `pairs` of `batch`. Contracts as in Executor::run().
  void compute(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch, std::span<const Pair> pairs,
               const ExpertOutputs& outputs, std::span<std::uint8_t> failed);

 private:
  // The slice's pairs of one expert.
  struct Group {
    SlabView slab;
    std::size_t first = 0;  // its first pair
    std::size_t n = 0;
    // Set and read by the workers:
    std::uint32_t chunks_left = 0;  // of gate and up
    std::uint32_t h_ready = 0;      // 1: its pairs' h is quantised
  };
  // Rows by pair, typed for either kind of product.
  struct RowPointers {
    Grown<const std::byte*> bytes;
    Grown<const float*> floats;

    void reserve(std::size_t n) { bytes.at_least(n), floats.at_least(n); }
    void set(std::size_t pair, const std::byte* row) const {
      bytes.data()[pair] = row;
      floats.data()[pair] = reinterpret_cast<const float*>(row);
    }
  };
  // One part of every slab: rows of `cols` weights without gaps.
  struct Part {
    const WeightKernels* weights = nullptr;
    std::size_t cols = 0;
    std::size_t row_bytes = 0;
  };
  // Rows [first_row, first_row + n_rows) of a part of one slab.
  struct Product {
    const Part& part;
    const std::byte* data;
    std::size_t first_row, n_rows;
  };

  void gather(SlabOf slab_of);
  void reserve();
  std::size_t chunk_rows(std::size_t n_rows, std::size_t n_groups) const;

  void run();
  void gate_and_up(Group& group, std::size_t chunk, std::size_t worker);
  void multiply_gate_and_up(const Group& group, std::size_t first_row, std::size_t n_rows, std::size_t worker);
  void quantise(std::size_t pair);
  void down(std::size_t chunk, std::size_t worker);
  static void await_h(Group& group);
  void down(const Group& group, std::size_t first_row, std::size_t n_rows, std::size_t worker);

  // y[pair of the group * y_stride + row] = product . x[pair]
  void multiply(const Product& product, const RowPointers& x, const Group& group, float* y, std::size_t y_stride,
                std::size_t worker) const;
  // Hands a pair's outputs [first_row, first_row + n_rows) on.
  void deliver(std::size_t pair, const float* out, std::size_t first_row, std::size_t n_rows) const;
  void fail(std::size_t pair) const;

  Parallel& parallel_;
  const Ops& ops_;

  // Of the slice being computed.
  const ExpertKernels* kernels_ = nullptr;
  Part gate_, up_, down_;
  const BatchView* batch_ = nullptr;
  std::span<const Pair> pairs_;
  ExpertOutputs outputs_;
  std::span<std::uint8_t> failed_;
  std::size_t n_groups_ = 0;
  std::size_t largest_group_ = 0;  // pairs
  std::size_t ff_chunk_ = 0;       // rows of gate and of up in an item
  std::size_t d_model_chunk_ = 0;  // rows of each expert's down in an item

  Grown<Group> groups_;
  RowPointers x_gate_, x_up_, x_down_;  // [n_pairs]
  Grown<float> h_;                      // [n_pairs, ff]
  Grown<std::byte> h_quantised_;        // [n_pairs] rows in down's class
  Grown<float> products_;               // [n_workers, largest group, kMaxChunk]: one item's up or down
  Grown<float> dequantised_;            // [n_workers, max(d_model, ff)]: a weight row under Activations::kF32
};

}  // namespace terrace::kernels
