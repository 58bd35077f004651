// Matrices times rows of x on a card: a list of groups in one launch, each a matrix of one shape and the rows that meet
// it. Experts of a layer are such a list; kernels/cuda/dense is the list of one.
//
// Result   y equals kernels/cpu/<type>/reference.cpp by ==, whatever shares the launch (docs/numerics.md 3, P1, P4).
// Types    Q8_0, Q4_0, Q3_K, Q4_K, Q5_K, Q6_K, F32, F16, BF16, as they lie in the file.
// Cost     A matrix is read once for all rows of its group, which take it one by one while they are few and eight at a
//          time on int8 tensor cores when they are more. From kGemmFromRows on K-types are read and taken apart once
//          for 64 or 128 rows.
// Threads  As Stream. Launches only; nothing waits and nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/expert_gemv/gemm_plan.h"
#include "kernels/cuda/expert_gemv/gemv_group.h"

namespace terrace::kernels::cuda {

struct GemvArgs {
  TensorType type = TensorType::kF32;
  std::uint32_t weight_rows = 0;
  std::uint32_t cols = 0;
  const GemvGroup* groups = nullptr;      // card memory [n_groups]
  std::uint32_t n_groups = 0;             // at most 65,535
  std::uint32_t max_rows = 0;             // no group has more: rows behind it are not computed
  const std::byte* x = nullptr;           // card memory: card rows of the type's activation class, 16-byte aligned
  std::size_t x_stride = 0;               // bytes between them, a multiple of 16
  const std::uint32_t* x_rows = nullptr;  // card memory: row of x of each row of the groups; null: the same number
  float* y = nullptr;                     // card memory: y[row * y_stride + weight row]; overlaps no input
  std::size_t y_stride = 0;               // floats
  // Rows of a group from which K-types go to the kernel for many; other numbers are for tests and benchmarks.
  std::uint32_t gemm_from = kGemmFromRows;
};

// kUnsupported: a type without a kernel, or rows too long for this card. kInvalidArgument: shapes. kInternal: the
// driver refused the launch; the text names the card and the sizes.
Status expert_gemv(const Stream& stream, const GemvArgs& args);

// The same for one matrix, given with the call instead of in the card's memory.
Status gemv_one(const Stream& stream, const GemvArgs& args, const GemvGroup& group);

// Some matrices, each with its group, in as few launches as it takes: one where all of them are Q4_K, Q5_K or Q6_K and
// rows few. At most kMaxTogether.
struct GemvOfMany {
  GemvArgs args;  // groups and n_groups are not used
  GemvGroup group;
};
inline constexpr std::size_t kMaxTogether = 3;
Status gemv_together(const Stream& stream, std::span<const GemvOfMany> products);

// The last product of a layer's experts with the rows that it needs, SILU(gate) * up, quantised where they are met.
// The kernel before it on the stream is that of gate or up, and `down.groups` are older than that one: its weights are
// brought meanwhile.
struct ExpertDownArgs {
  GemvArgs down;                                // x, x_stride and x_rows are not used
  const float* gate = nullptr;                  // card memory [rows of the groups, down.cols]
  const float* up = nullptr;                    // the same
  const std::uint32_t* failure_rows = nullptr;  // card memory: where a row of the groups notes that it is not finite
  std::uint32_t code = 0;
  std::uint32_t* failures = nullptr;  // card memory
};
// Whether expert_down() takes such a product: Q4_K, Q5_K or Q6_K, and few rows. Errors as expert_gemv().
Result<bool> has_expert_down(const Stream& stream, const GemvArgs& down);
Status expert_down(const Stream& stream, const ExpertDownArgs& args);

// True if there is a kernel for the type.
bool has_gemv(TensorType type);
// The form in which rows of x meet the type.
ActivationClass gemv_activation(TensorType type);
// Bytes of such a row as the kernels want it (kernels/cuda/weights/card_rows.h); kernels/cuda/activations makes them.
std::uint32_t card_row_bytes(TensorType type, std::uint32_t cols);

}  // namespace terrace::kernels::cuda
