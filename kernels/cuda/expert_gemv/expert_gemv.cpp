#include "kernels/cuda/expert_gemv/expert_gemv.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/expert_gemv/gemm_plan.h"
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

struct Plans {
  GemvPlan gemv;
  GemmPlan gemm;
  std::uint32_t shared_bytes() const { return gemm.columns != 0 ? gemm.shared_bytes : gemv.shared_bytes; }
};

Result<Plans> plan_for(const Stream& stream, const Row& row, const GemvArgs& args) {
  const GemvShape shape{args.type, row.activation, row.x_sum_values, args.weight_rows,
                        args.cols, args.n_groups,  args.max_rows};
  const GemvCard card{stream.card().multiprocessors, stream.card().shared_bytes_per_block};
  TERRACE_ASSIGN_OR_RETURN(const GemvPlan gemv, plan_gemv(shape, card));
  return Plans{gemv, plan_gemm(shape, card, args.gemm_from)};
}

GemvKernelArgs kernel_args(const Stream& stream, const GemvArgs& args, const GemvGroup* only, const Plans& plans) {
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
  kernel.plan = plans.gemv;
  kernel.gemm = plans.gemm;
  kernel.overlap = stream.card().compute_major >= kOverlapFrom;
  return kernel;
}

Status after_gemv(const Stream& stream, const GemvArgs& args, std::uint32_t shared_bytes) {
  return after_launch(stream, "gemv",
                      {{"type", static_cast<std::uint64_t>(args.type)},
                       {"weight rows", args.weight_rows},
                       {"cols", args.cols},
                       {"groups", args.n_groups},
                       {"rows", args.max_rows},
                       {"shared bytes", shared_bytes}});
}

Result<const Row*> row_of(TensorType type) {
  if (const Row* row = find(type)) return row;
  return Error(ErrorCode::kUnsupported, fmt::format("there is no card kernel for {}", info(type).name));
}

Status launch(const Stream& stream, const GemvArgs& args, const GemvGroup* only) {
  TERRACE_ASSIGN_OR_RETURN(const Row* row, row_of(args.type));
  TERRACE_ASSIGN_OR_RETURN(const Plans plans, plan_for(stream, *row, args));
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  row->launch(kernel_args(stream, args, only, plans), stream.native());
  return after_gemv(stream, args, plans.shared_bytes());
}

GemvArgs of_one_group(const GemvArgs& args, const GemvGroup& group) {
  GemvArgs one = args;
  one.n_groups = 1;
  one.max_rows = group.n;
  return one;
}

bool goes_together(TensorType type) {
  return type == TensorType::kQ4_K || type == TensorType::kQ5_K || type == TensorType::kQ6_K;
}

}  // namespace

Status expert_gemv(const Stream& stream, const GemvArgs& args) {
  if (args.n_groups > 65535)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} groups in one launch: at most 65535", args.n_groups));
  return launch(stream, args, nullptr);
}

Status gemv_one(const Stream& stream, const GemvArgs& args, const GemvGroup& group) {
  return launch(stream, of_one_group(args, group), &group);
}

Status gemv_together(const Stream& stream, std::span<const GemvOfMany> products) {
  TERRACE_CHECK(products.size() <= kMaxTogether, "more products than one launch takes");
  GemvSeveralArgs several{};
  for (const GemvOfMany& product : products) {
    const GemvArgs one = of_one_group(product.args, product.group);
    TERRACE_ASSIGN_OR_RETURN(const Row* row, row_of(one.type));
    TERRACE_ASSIGN_OR_RETURN(const Plans plans, plan_for(stream, *row, one));
    if (!goes_together(one.type) || plans.gemv.method != GemvMethod::kBlocks || plans.gemm.columns != 0) break;
    several.types[several.n] = one.type;
    several.products[several.n++] = kernel_args(stream, one, &product.group, plans);
  }
  if (several.n < products.size()) {
    for (const GemvOfMany& product : products) TERRACE_RETURN_IF_ERROR(gemv_one(stream, product.args, product.group));
    return {};
  }
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  launch_gemv_several(several, stream.native());
  return after_gemv(stream, products[0].args, several.products[0].plan.shared_bytes);
}

Result<bool> has_expert_down(const Stream& stream, const GemvArgs& down) {
  if (!goes_together(down.type)) return false;
  TERRACE_ASSIGN_OR_RETURN(const Row* row, row_of(down.type));
  TERRACE_ASSIGN_OR_RETURN(const Plans plans, plan_for(stream, *row, down));
  return plans.gemv.method == GemvMethod::kBlocks && plans.gemm.columns == 0 &&
         expert_down_shared_bytes(kernel_args(stream, down, nullptr, plans)) <= stream.card().shared_bytes_per_block;
}

Status expert_down(const Stream& stream, const ExpertDownArgs& args) {
  TERRACE_ASSIGN_OR_RETURN(const bool has, has_expert_down(stream, args.down));
  TERRACE_CHECK(has, "expert_down() of a product that it does not take");
  TERRACE_ASSIGN_OR_RETURN(const Row* row, row_of(args.down.type));
  TERRACE_ASSIGN_OR_RETURN(const Plans plans, plan_for(stream, *row, args.down));
  TERRACE_RETURN_IF_ERROR(before_launch(stream));
  launch_expert_down(
      args.down.type,
      {kernel_args(stream, args.down, nullptr, plans), args.gate, args.up, args.failure_rows, args.code, args.failures},
      stream.native());
  return after_gemv(stream, args.down, plans.gemv.shared_bytes);
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
