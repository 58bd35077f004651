// What a GEMV kernel is launched with. Plain structs that travel by value.
#pragma once

#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "kernels/cuda/expert_gemv/gemm_plan.h"
#include "kernels/cuda/expert_gemv/plan.h"

struct CUstream_st;

namespace terrace::kernels::cuda {

struct GemvKernelArgs {
  GemvGroup only;           // the one group, where `groups` is null
  const GemvGroup* groups;  // on the card
  const std::byte* x;
  std::uint64_t x_stride;
  const std::uint32_t* x_rows;
  float* y;
  std::uint64_t y_stride;
  std::uint32_t n_groups;
  std::uint32_t weight_rows;
  std::uint32_t cols;
  std::uint32_t max_rows;
  GemvPlan plan;
  GemmPlan gemm;  // instead of `plan` where it has columns
  bool overlap;   // kernels/cuda/device/overlap.cuh
};

// Matrices that meet the same rows of x.
struct GemvSeveralArgs {
  static constexpr std::uint32_t kMost = 3;
  GemvKernelArgs products[kMost];
  TensorType types[kMost];
  std::uint32_t n;
};
// Q4_K, Q5_K and Q6_K by GemvMethod::kBlocks.
void launch_gemv_several(const GemvSeveralArgs& args, CUstream_st* stream);

// A product that makes its rows of x itself: of SILU(gate) * up of the groups' rows.
struct ExpertDownKernelArgs {
  GemvKernelArgs gemv;  // kBlocks; x is not used
  const float* gate;    // [rows of the groups, cols]
  const float* up;
  const std::uint32_t* failure_rows;
  std::uint32_t code;
  std::uint32_t* failures;
};
// Q4_K, Q5_K and Q6_K. Behind the plan's shared memory lies the row that is being made.
void launch_expert_down(TensorType type, const ExpertDownKernelArgs& args, CUstream_st* stream);
std::uint32_t expert_down_shared_bytes(const GemvKernelArgs& args);

// Launches the kernel of one weight type; what went wrong is the launch's own error (device/launch.h).
using LaunchGemv = void(const GemvKernelArgs& args, CUstream_st* stream);

// One file a type: each takes the compiler a while.
LaunchGemv launch_gemv_q8_0, launch_gemv_q4_0, launch_gemv_q3_k, launch_gemv_q4_k, launch_gemv_q5_k, launch_gemv_q6_k;
LaunchGemv launch_gemv_f32, launch_gemv_f16, launch_gemv_bf16;

}  // namespace terrace::kernels::cuda
