#include "common/manifest/experts.h"

#include <fmt/format.h>

#include "common/gguf/text.h"
#include "common/manifest/expert_stacks.h"

namespace terrace::manifest {
namespace {

struct Architecture {
  std::string_view name;
  Result<ModelExperts> (*find)(const gguf::File& file);
};
constexpr Architecture kArchitectures[] = {
    {"qwen3moe", find_qwen3moe_experts},
};

Status check_rows(const char* part, TensorType type, std::uint32_t width) {
  const TensorTypeInfo& t = info(type);
  if (width % t.block_values == 0) return {};
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} rows of {} values are no whole blocks of {} ({})", part, width, t.block_values, t.name));
}

}  // namespace

std::uint64_t ModelExperts::total_bytes() const {
  std::uint64_t sum = 0;
  for (const LayerExperts& layer : layers) sum += layer.shape.slab_bytes() * layer.shape.n_experts;
  return sum;
}

Status check_layer_shape(const LayerShape& shape) {
  if (shape.n_experts == 0) return {};
  for (const std::uint32_t width : {shape.d_model, shape.ff}) {
    if (width < 1 || width > kMaxWidth)
      return Error(ErrorCode::kCorrupt, fmt::format("a width of {}; 1 to {} is the range", width, kMaxWidth));
  }
  TERRACE_RETURN_IF_ERROR(check_rows("gate", shape.types.gate, shape.d_model));
  TERRACE_RETURN_IF_ERROR(check_rows("up", shape.types.up, shape.d_model));
  return check_rows("down", shape.types.down, shape.ff);
}

Result<ModelExperts> find_experts(const gguf::File& file) {
  TERRACE_ASSIGN_OR_RETURN(const auto name, file.architecture());
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture.find(file);
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} is {}, which is not known; experts are found in: {}",
                           file.key_place("general.architecture"), gguf::escaped(name), known));
}

}  // namespace terrace::manifest
