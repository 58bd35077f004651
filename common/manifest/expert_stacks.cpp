#include "common/manifest/expert_stacks.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace terrace::manifest {
namespace {

using Stack = std::array<std::uint64_t, 3>;  // values of a row, rows, experts

std::string stack_name(std::uint32_t layer, std::string_view part, std::string_view suffix = "weight") {
  return fmt::format("blk.{}.ffn_{}_exps.{}", layer, part, suffix);
}

// Files of before the stacks have a tensor for each expert: "blk.0.ffn_gate.3.weight".
Error missing_stack(const gguf::File& file, std::uint32_t layer, std::string_view part, const Error& missing) {
  const std::string old = fmt::format("blk.{}.ffn_{}.0.weight", layer, part);
  const gguf::TensorInfo* tensor = file.find_tensor(old);
  if (tensor == nullptr) return missing;
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} holds one expert alone, an old form of which {} is the new one; convert the model again",
                           file.tensor_place(*tensor), stack_name(layer, part)));
}

// The stack of this part, with exactly this shape.
Result<const gguf::TensorInfo*> get_stack(const gguf::File& file, std::uint32_t layer, std::string_view part,
                                          const Stack& expected) {
  const auto found = file.get_tensor(stack_name(layer, part));
  if (!found.ok()) return missing_stack(file, layer, part, found.error());
  const gguf::TensorInfo* const tensor = *found;
  if (std::equal(expected.begin(), expected.end(), tensor->shape.begin()) && tensor->shape[3] == 1) return tensor;
  return Error(ErrorCode::kCorrupt, fmt::format("{} has the shape {}; [{}] is expected", file.tensor_place(*tensor),
                                                tensor->shape_text(), fmt::join(expected, ", ")));
}

// Rows [first_row, first_row + n_rows) of every expert.
PartLocation locate(const gguf::TensorInfo& tensor, std::uint64_t first_row, std::uint64_t n_rows) {
  const std::uint64_t row = row_bytes(tensor.type, tensor.shape[0]);
  return {tensor.name, tensor.shard, tensor.file_offset + first_row * row, tensor.shape[1] * row, n_rows * row};
}

// Scales and biases of experts change what a slab computes; leaving them out would give wrong numbers.
Status refuse_extras(const gguf::File& file, std::uint32_t layer) {
  for (const char* part : {"gate", "up", "down", "gate_up"}) {
    for (const char* suffix : {"scale", "bias"}) {
      const std::string name = stack_name(layer, part, suffix);
      const gguf::TensorInfo* extra = file.find_tensor(name);
      if (extra == nullptr) continue;
      return Error(ErrorCode::kUnsupported, fmt::format("{}: experts with a {} are not computed for this architecture",
                                                        file.tensor_place(*extra), suffix));
    }
  }
  return {};
}

Status find_gate_and_up(const gguf::File& file, std::uint32_t layer, const Stack& expected, LayerExperts& out) {
  const auto [d_model, ff, n_experts] = expected;
  if (const gguf::TensorInfo* there = file.find_tensor(stack_name(layer, "gate_up"))) {
    for (const char* part : {"gate", "up"})
      if (file.find_tensor(stack_name(layer, part)) != nullptr)
        return Error(ErrorCode::kCorrupt, fmt::format("{} and {} hold the same rows twice; one of them is wrong",
                                                      file.tensor_place(*there), stack_name(layer, part)));
    TERRACE_ASSIGN_OR_RETURN(const auto* fused, get_stack(file, layer, "gate_up", {d_model, 2 * ff, n_experts}));
    out.shape.types.gate = out.shape.types.up = fused->type;
    out.gate = locate(*fused, 0, ff);
    out.up = locate(*fused, ff, ff);
    return {};
  }
  TERRACE_ASSIGN_OR_RETURN(const auto* gate, get_stack(file, layer, "gate", expected));
  TERRACE_ASSIGN_OR_RETURN(const auto* up, get_stack(file, layer, "up", expected));
  out.shape.types.gate = gate->type;
  out.shape.types.up = up->type;
  out.gate = locate(*gate, 0, ff);
  out.up = locate(*up, 0, ff);
  return {};
}

}  // namespace

Result<std::uint32_t> read_number(const gguf::File& file, std::string_view name, std::uint32_t least,
                                  std::uint32_t most) {
  TERRACE_ASSIGN_OR_RETURN(const auto architecture, file.architecture());
  const std::string key = fmt::format("{}.{}", architecture, name);
  TERRACE_ASSIGN_OR_RETURN(const auto number, file.get_u32(key));
  if (number >= least && number <= most) return number;
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} is {}; {} to {} is the range", file.key_place(key), number, least, most));
}

Result<ModelExperts> read_expert_numbers(const gguf::File& file) {
  ModelExperts model;
  TERRACE_ASSIGN_OR_RETURN(const auto architecture, file.architecture());
  model.architecture = std::string(architecture);
  if (file.tensors().empty())
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{}: a vocabulary file without tensors, no model", file.path().string()));
  // Every block has tensors of its own, so their number bounds the blocks before anything is allocated for them.
  const auto most_blocks = static_cast<std::uint32_t>(std::min<std::size_t>(kMaxLayers, file.tensors().size()));
  TERRACE_ASSIGN_OR_RETURN(const auto n_layers, read_number(file, "block_count", 1, most_blocks));
  TERRACE_ASSIGN_OR_RETURN(model.d_model, read_number(file, "embedding_length", 1, kMaxWidth));
  TERRACE_ASSIGN_OR_RETURN(model.n_experts, read_number(file, "expert_count", 1, kMaxExperts));
  TERRACE_ASSIGN_OR_RETURN(model.top_k, read_number(file, "expert_used_count", 1, model.n_experts));
  model.layers.resize(n_layers);
  return model;
}

Result<LayerExperts> find_stacks(const gguf::File& file, const ModelExperts& model, std::uint32_t layer,
                                 std::uint32_t ff) {
  LayerExperts out;
  out.shape.d_model = model.d_model;
  out.shape.ff = ff;
  out.shape.n_experts = model.n_experts;
  TERRACE_RETURN_IF_ERROR(refuse_extras(file, layer));
  TERRACE_RETURN_IF_ERROR(find_gate_and_up(file, layer, {model.d_model, ff, model.n_experts}, out));
  TERRACE_ASSIGN_OR_RETURN(const auto* down, get_stack(file, layer, "down", {ff, model.d_model, model.n_experts}));
  out.shape.types.down = down->type;
  out.down = locate(*down, 0, model.d_model);
  return out;
}

}  // namespace terrace::manifest
