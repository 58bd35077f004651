// qwen3moe: every block has routed experts, none is shared.
#include <fmt/format.h>

#include "common/manifest/expert_stacks.h"

namespace terrace::manifest {
namespace {

// Old files lack the experts' own width and give the sum of the experts used.
Result<std::uint32_t> read_ff(const gguf::File& file, const ModelExperts& model) {
  if (file.find("qwen3moe.expert_feed_forward_length") != nullptr)
    return read_number(file, "expert_feed_forward_length", 1, kMaxWidth);
  TERRACE_ASSIGN_OR_RETURN(const auto sum, read_number(file, "feed_forward_length", model.top_k, kMaxWidth));
  return sum / model.top_k;
}

}  // namespace

Result<ModelExperts> find_qwen3moe_experts(const gguf::File& file) {
  TERRACE_ASSIGN_OR_RETURN(auto model, read_expert_numbers(file));
  TERRACE_ASSIGN_OR_RETURN(const auto ff, read_ff(file, model));
  for (std::uint32_t layer = 0; layer < model.layers.size(); ++layer) {
    TERRACE_ASSIGN_OR_RETURN(model.layers[layer], find_stacks(file, model, layer, ff));
  }
  return model;
}

}  // namespace terrace::manifest
