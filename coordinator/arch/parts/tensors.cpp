#include "coordinator/arch/parts/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/registry/registry.h"

namespace terrace::arch {

TensorBinder::TensorBinder(const gguf::File& file, const TrunkOptions& options)
    : file_(file), cpu_(kernels::detect_cpu_features()), isa_(options.isa), activations_(options.activations) {}

Result<const gguf::TensorInfo*> TensorBinder::find(std::string_view name,
                                                   std::initializer_list<std::uint64_t> shape) const {
  TERRACE_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, file_.get_tensor(name));
  std::array<std::uint64_t, gguf::kMaxRank> expected = {1, 1, 1, 1};
  std::ranges::copy(shape, expected.begin());
  if (tensor->shape == expected) return tensor;
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} has the shape {}; the model's keys say [{}]", file_.tensor_place(*tensor),
                           tensor->shape_text(), fmt::join(shape, ", ")));
}

Status TensorBinder::absent(std::string_view name) const {
  const gguf::TensorInfo* tensor = file_.find_tensor(name);
  if (tensor == nullptr) return {};
  return Error(ErrorCode::kUnsupported, fmt::format("{} is not part of what this build computes for the architecture",
                                                    file_.tensor_place(*tensor)));
}

Status TensorBinder::no_companions(std::string_view stem) const {
  TERRACE_RETURN_IF_ERROR(absent(std::string(stem) + ".bias"));
  return absent(std::string(stem) + ".scale");
}

Result<kernels::WeightKernels> TensorBinder::kernels_for(const gguf::TensorInfo& tensor) const {
  auto kernels = kernels::select_weight_kernels(tensor.type, cpu_, isa_);
  if (!kernels.ok()) return kernels.error().in(file_.tensor_place(tensor));
  return kernels;
}

Result<Matrix> TensorBinder::matrix(std::string_view stem, std::uint64_t cols, std::uint64_t rows) const {
  TERRACE_RETURN_IF_ERROR(no_companions(stem));
  TERRACE_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, find(std::string(stem) + ".weight", {cols, rows}));
  Matrix matrix;
  TERRACE_ASSIGN_OR_RETURN(matrix.kernels, kernels_for(*tensor));
  matrix.data = file_.data(*tensor).data();
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.row_bytes = row_bytes(tensor->type, cols);
  matrix.activation = activations_ == kernels::Activations::kF32 ? ActivationClass::kF32 : matrix.kernels.activation;
  return matrix;
}

Result<const float*> TensorBinder::vector(std::string_view stem, std::uint64_t n) const {
  TERRACE_RETURN_IF_ERROR(no_companions(stem));
  TERRACE_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, find(std::string(stem) + ".weight", {n}));
  if (tensor->type != TensorType::kF32)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} is {}; F32 is needed", file_.tensor_place(*tensor), info(tensor->type).name));
  return reinterpret_cast<const float*>(file_.data(*tensor).data());  // tensors start at multiples of 8 bytes
}

Result<std::uint64_t> TensorBinder::expert_bytes(std::string_view stem, std::uint64_t cols, std::uint64_t rows,
                                                 std::uint64_t n_experts) const {
  TERRACE_RETURN_IF_ERROR(no_companions(stem));
  TERRACE_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor,
                           find(std::string(stem) + ".weight", {cols, rows, n_experts}));
  TERRACE_RETURN_IF_ERROR(kernels_for(*tensor));
  return tensor->bytes / n_experts;
}

Result<std::uint64_t> TensorBinder::gate_and_up_bytes(const std::string& block, std::uint64_t d_model, std::uint64_t ff,
                                                      std::uint64_t n_experts) const {
  const std::string fused = block + "ffn_gate_up_exps";
  if (file_.find_tensor(fused + ".weight") != nullptr) {
    TERRACE_RETURN_IF_ERROR(absent(block + "ffn_gate_exps.weight"));
    TERRACE_RETURN_IF_ERROR(absent(block + "ffn_up_exps.weight"));
    return expert_bytes(fused, d_model, 2 * ff, n_experts);
  }
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t gate, expert_bytes(block + "ffn_gate_exps", d_model, ff, n_experts));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t up, expert_bytes(block + "ffn_up_exps", d_model, ff, n_experts));
  return gate + up;
}

}  // namespace terrace::arch
