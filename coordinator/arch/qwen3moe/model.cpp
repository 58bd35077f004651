#include "coordinator/arch/qwen3moe/model.h"

#include <fmt/format.h>

namespace terrace::arch::qwen3moe {
namespace {

constexpr std::uint32_t kMostRows = 65536;  // a row's number travels as u16

Status check_options(const gguf::File& file, const Parameters& p, const TrunkOptions& options) {
  if (options.context > p.context)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: a context of {} positions was asked for; the model has {}", file.path().string(),
                             options.context, p.context));
  if (options.max_rows == 0 || options.max_rows > kMostRows)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("steps of {} rows were asked for; 1 to {} is allowed", options.max_rows, kMostRows));
  return {};
}

}  // namespace

Result<Model> read_model(const gguf::File& file, const TrunkOptions& options) {
  Model m;
  TERRACE_ASSIGN_OR_RETURN(m.parameters, read_parameters(file));
  TERRACE_RETURN_IF_ERROR(check_options(file, m.parameters, options));
  TERRACE_ASSIGN_OR_RETURN(m.tensors, bind_tensors(file, m.parameters, options));
  const Parameters& p = m.parameters;
  m.cache = {.n_layers = p.n_layers,
             .n_kv_heads = p.attention.n_kv_heads,
             .key_dim = p.attention.key_dim,
             .value_dim = p.attention.value_dim,
             .type = options.kv};
  if (options.cache_bytes != 0 && options.cache_bytes < m.cache.block_bytes())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: a cache of {} bytes was asked for; one block of it has {}", file.path().string(),
                             options.cache_bytes, m.cache.block_bytes()));
  m.info = {.architecture = "qwen3moe",
            .n_layers = p.n_layers,
            .d_model = p.d_model,
            .vocabulary = m.tensors.vocabulary(),
            .n_experts = p.n_experts,
            .top_k = p.top_k,
            .context = p.context,
            .kv_bytes_per_position = m.cache.bytes_per_position(),
            .weight_bytes_per_step = m.tensors.bytes_per_step(p.top_k),
            .embedding_row_bytes = m.tensors.embedding.row_bytes,
            .head_bytes = m.tensors.head.bytes(),
            .expert_bytes = {},
            .dense_products = {}};
  for (const Layer& layer : m.tensors.layers) m.info.expert_bytes.push_back(layer.expert_bytes);
  for (const Matrix* matrix : m.tensors.dense_products())
    m.info.dense_products.push_back(
        {matrix->kernels.type, static_cast<std::uint32_t>(matrix->rows), static_cast<std::uint32_t>(matrix->cols)});
  return m;
}

}  // namespace terrace::arch::qwen3moe
