// Computes pairs (row, expert) over slabs that lie in memory: the one implementation behind the coordinator's host
// leg, the node's CPU and the backstop (docs/numerics.md 1, 3, 4, 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/weight_kernels.h"

namespace terrace::kernels {

// A row's use of an expert. Lies in memory as it travels.
struct Pair {
  std::uint16_t row = 0;     // index into the batch's rows
  std::uint16_t expert = 0;  // of the batch's layer
  float weight = 0;          // finite
};
static_assert(sizeof(Pair) == 8);

// The bytes of one expert of one layer; each part's rows lie without gaps. Borrowed.
struct SlabView {
  const std::byte* gate = nullptr;  // [ff, d_model]
  const std::byte* up = nullptr;    // [ff, d_model]
  const std::byte* down = nullptr;  // [d_model, ff]
};

// What all experts of a layer have in common.
struct ExpertShape {
  TensorType gate = TensorType::kF32;
  TensorType up = TensorType::kF32;
  TensorType down = TensorType::kF32;
  std::uint32_t d_model = 0;
  std::uint32_t ff = 0;

  std::uint64_t gate_bytes() const { return ff * row_bytes(gate, d_model); }
  std::uint64_t up_bytes() const { return ff * row_bytes(up, d_model); }
  std::uint64_t down_bytes() const { return d_model * row_bytes(down, ff); }
  std::uint64_t slab_bytes() const { return gate_bytes() + up_bytes() + down_bytes(); }
  bool operator==(const ExpertShape&) const = default;
};

// How products are computed: by the contract, or (checking only, never on a node) every product as
// docs/numerics.md 3.2 over the dequantised weight row and f32 activations.
enum class Activations : std::uint8_t { kQuantised, kF32 };

// The kernels of one layer's experts.
struct ExpertKernels {
  ExpertShape shape;
  WeightKernels gate, up, down;
  Activations activations = Activations::kQuantised;

  // The classes in which gate and up want their rows (kF32 under Activations::kF32).
  ActivationClass gate_class() const;
  ActivationClass up_class() const;
  // The class in which down wants the rows between: what the executor quantises them to.
  ActivationClass down_class() const;
};
// kUnsupported, kInvalidArgument (a row that is no multiple of its blocks): as for the types.
Result<ExpertKernels> select_expert_kernels(const ExpertShape& shape, const CpuFeatures& cpu, std::optional<Isa> forced,
                                            Activations activations);

// Rows in one activation class, `stride` bytes apart.
struct RowsView {
  ActivationClass activation = ActivationClass::kF32;
  const std::byte* data = nullptr;
  std::size_t stride = 0;
  const std::byte* row(std::size_t i) const { return data + i * stride; }
};

struct BatchView {
  RowsView gate_rows;           // [n_rows, d_model] in gate's class
  RowsView up_rows;             // the same memory when the classes are equal
  std::size_t n_rows = 0;       // <= 65,536
  std::span<const Pair> pairs;  // sorted by expert, then row; rows < n_rows
};

// [n_rows, d_model] int64, unit 2^-shift.
struct SumsView {
  std::int64_t* data = nullptr;
  std::size_t d_model = 0;
  int shift = 24;
  std::int64_t* row(std::size_t i) const { return data + i * d_model; }
};

struct ExecStats {
  std::uint64_t pairs = 0;
  std::uint64_t compute_ns = 0;  // kernels only
};

// One call at a time; `parallel` and `ops` outlive it. Scratch grows to the largest slice seen and is kept: no
// allocation after warm-up.
class Executor {
 public:
  // Slices of wide experts have fewer pairs, so that their scratch stays below this; a single pair's may be more.
  static constexpr std::uint64_t kMaxScratchBytes = std::uint64_t{64} << 20;
  static constexpr std::size_t kMaxPairsPerSlice = 512;
  // Bytes of scratch that batches of any size over `kernels` need at the most.
  static std::uint64_t scratch_bytes(const ExpertKernels& kernels, std::size_t n_workers);

  // max_pairs_per_slice bounds scratch and the time between two calls of the slice hook.
  Executor(Parallel& parallel, const Ops& ops, std::size_t max_pairs_per_slice = kMaxPairsPerSlice);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Slab of an expert; must hold it: a null part aborts (asking a leg for an expert it does not own is our bug). Asked
  // on the calling thread; the slabs are borrowed until the slice is done.
  using SlabOf = FunctionRef<SlabView(std::uint16_t expert)>;
  // Called between slices; false stops the call with kDeadline. The hook may use another Executor on the same
  // Parallel.
  using BetweenSlices = FunctionRef<bool()>;

  // Adds every pair's weighted output into sums (which is not cleared: pieces of a batch may share it), and sets
  // failed[row] = 1 for each row with an output that is not finite or leaves the fixed-point range; the sums of such
  // a row are undefined, all others are valid. failed holds n_rows bytes.
  // On error sums is undefined and the pairs may be computed elsewhere. Same bits for any split, order, ISA and
  // number of workers (P1, P2).
  Result<ExecStats> run(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch, SumsView sums,
                        std::span<std::uint8_t> failed, BetweenSlices between_slices);

  // The same without weights and sums: out[i] = the i-th pair's expert output, [n_pairs, d_model]. Here a row fails
  // only when an output is not finite, and its outputs are undefined. For audits, canaries and tests.
  Result<ExecStats> run_slots(const ExpertKernels& kernels, SlabOf slab_of, const BatchView& batch,
                              std::span<float> out, std::span<std::uint8_t> failed, BetweenSlices between_slices);

 private:
  class Slice;
  std::size_t pairs_per_slice(const ExpertKernels& kernels) const;

  Parallel& parallel_;
  std::unique_ptr<Slice> slice_;
  std::size_t max_pairs_per_slice_;
};

}  // namespace terrace::kernels
