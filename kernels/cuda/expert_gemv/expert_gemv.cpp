#include "kernels/cuda/expert_gemv/expert_gemv.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/expert_gemv/kernel_args.h"
#include "kernels/cuda/expert_gemv/plan.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

struct Row {
  TensorType type;
  ActivationClass activation;
  std::uint32_t x_sum_values;
  LaunchGemv* launch;
};

constexpr Row kRows[] = {
    {TensorType::kQ8_0, ActivationClass::kA8x32, 32, launch_gemv_q8_0},
    {TensorType::kQ4_0, ActivationClass::kA8x32, 32, launch_gemv_q4_0},
    {TensorType::kQ3_K, ActivationClass::kA8x256, 16, launch_gemv_q3_k},
    {TensorType::kQ4_K, ActivationClass::kA8x256, 32, launch_gemv_q4_k},
    {TensorType::kQ5_K, ActivationClass::kA8x256, 32, launch_gemv_q5_k},
    {TensorType::kQ6_K, ActivationClass::kA8x256, 16, launch_gemv_q6_k},
    {TensorType::kF32, ActivationClass::kF32, 0, launch_gemv_f32},
    {TensorType::kF16, ActivationClass::kF32, 0, launch_gemv_f16},
    {TensorType::kBF16, ActivationClass::kF32, 0, launch_gemv_bf16},
};

const Row* find(TensorType type) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.type == type; });
  return row == std::end(kRows) ? nullptr : row;
}

Status launch(const Stream& stream, const GemvArgs& args, const GemvGroup* only) {
  const Row* row = find(args.type);
  if (row == nullptr)
    return Error(ErrorCode::kUnsupported, fmt::format("there is no card kernel for {}", info(args.type).name));
  TERRACE_ASSIGN_OR_RETURN(const GemvPlan plan,
                           plan_gemv({args.type, row->activation, row->x_sum_values, args.weight_rows, args.cols,
                                      args.n_groups, args.max_rows},
                                     {stream.card().multiprocessors, stream.card().shared_bytes_per_block}));
  GemvKernelArgs kernel{};
  if (only != nullptr) kernel.only = *only;
  kernel.groups = only != nullptr ? nullptr : args.groups;
  kernel.x = args.x;
  kernel.x_stride = args.x_stride;
  kernel.x_rows = args.x_rows;
  kernel.y = args.y;
  kernel.y_stride = args.y_stride;
  kernel.n_groups = args.n_groups;
  kernel.weight_rows = args.weight_rows;
  kernel.cols = args.cols;
  kernel.max_rows = args.max_rows;
  kernel.plan = plan;
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  row->launch(kernel, stream.native());
  return after_launch(stream, "gemv",
                      {{"type", static_cast<std::uint64_t>(args.type)},
                       {"weight rows", args.weight_rows},
                       {"cols", args.cols},
                       {"groups", args.n_groups},
                       {"rows", args.max_rows},
                       {"shared bytes", plan.shared_bytes}});
}

}  // namespace

Status expert_gemv(const Stream& stream, const GemvArgs& args) {
  if (args.n_groups > 65535)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} groups in one launch: at most 65535", args.n_groups));
  return launch(stream, args, nullptr);
}

Status gemv_one(const Stream& stream, const GemvArgs& args, const GemvGroup& group) {
  GemvArgs one = args;
  one.n_groups = 1;
  one.max_rows = group.n;
  return launch(stream, one, &group);
}

bool has_gemv(TensorType type) { return find(type) != nullptr; }

std::uint32_t card_row_bytes(TensorType type, std::uint32_t cols) {
  return card_row_layout(block_values(gemv_activation(type)), cols).bytes;
}

ActivationClass gemv_activation(TensorType type) {
  const Row* row = find(type);
  TERRACE_CHECK(row != nullptr, "the activation class of a type without a card kernel");
  return row->activation;
}

}  // namespace terrace::kernels::cuda
