#include <fmt/core.h>

#include <numeric>

#include "kernels/executor/executor.h"
#include "kernels/registry/registry.h"

namespace terrace::kernels {
namespace {

// The kernels of one part, whose rows have `cols` values.
Result<WeightKernels> select_part(const char* part, TensorType type, std::uint32_t cols, const CpuFeatures& cpu,
                                  std::optional<Isa> forced) {
  Result<WeightKernels> selected = select_weight_kernels(type, cpu, forced);
  if (!selected.ok()) return selected.error().in(part);
  const std::uint32_t block = std::lcm(info(type).block_values, block_values(selected->activation));
  if (cols != 0 && cols % block == 0) return selected;
  return Error(ErrorCode::kInvalidArgument, fmt::format("{}: a row of {} values is no multiple of {}'s blocks of {}",
                                                        part, cols, info(type).name, block));
}

ActivationClass class_of(const WeightKernels& weights, Activations activations) {
  return activations == Activations::kF32 ? ActivationClass::kF32 : weights.activation;
}

}  // namespace

ActivationClass ExpertKernels::gate_class() const { return class_of(gate, activations); }
ActivationClass ExpertKernels::up_class() const { return class_of(up, activations); }
ActivationClass ExpertKernels::down_class() const { return class_of(down, activations); }

Result<ExpertKernels> select_expert_kernels(const ExpertShape& shape, const CpuFeatures& cpu, std::optional<Isa> forced,
                                            Activations activations) {
  ExpertKernels kernels;
  kernels.shape = shape;
  kernels.activations = activations;
  TERRACE_ASSIGN_OR_RETURN(kernels.gate, select_part("experts' gate", shape.gate, shape.d_model, cpu, forced));
  TERRACE_ASSIGN_OR_RETURN(kernels.up, select_part("experts' up", shape.up, shape.d_model, cpu, forced));
  TERRACE_ASSIGN_OR_RETURN(kernels.down, select_part("experts' down", shape.down, shape.ff, cpu, forced));
  return kernels;
}

}  // namespace terrace::kernels
