// The launches of one layer.
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/trunk/trunk.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

// Rows of an expert, on average, from which the kernel for many rows is the faster one: some experts have far more.
constexpr std::uint32_t kManyRowsOfExpert = 4;

}  // namespace

// Codes rise with time, so that the first failure of a row is the one that is told.
std::uint32_t CudaTrunk::code(std::uint32_t layer, CardFailure what) const {
  return layer * 16 + static_cast<std::uint32_t>(what);
}

CudaTrunk::Rows CudaTrunk::rows_of_h(TensorType type) const {
  const ActivationClass activation = gemv_activation(type);
  const std::uint32_t stride = card_row_bytes(type, model_.d_model);
  if (activation == ActivationClass::kF32) return {step<std::byte>(at_.h), stride};
  return {step<std::byte>(activation == ActivationClass::kA8x32 ? at_.rows_32 : at_.rows_256), stride};
}

KvCache CudaTrunk::cache_of(std::uint32_t layer) const {
  return {weight<std::byte>(cache_.k + layer * cache_.k_layer_bytes),
          weight<std::byte>(cache_.v + layer * cache_.v_layer_bytes),
          limits_.kv,
          model_.n_kv_heads,
          model_.key_dim,
          model_.value_dim,
          step<std::uint32_t>(at_.blocks),
          static_cast<std::uint32_t>((limits_.context + kKvBlockPositions - 1) / kKvBlockPositions)};
}

// x = x + what is pending; h = its norm in every form that some matrix wants. layer: the number of layers for the
// head's, of the rows that want logits.
Status CudaTrunk::norm(std::uint32_t layer, Pending pending, CardFailure what) {
  return residual(stream_, norm_args(layer, pending, what));
}

ResidualArgs CudaTrunk::norm_args(std::uint32_t layer, Pending pending, CardFailure what) const {
  const bool is_head = what == CardFailure::kNormedBeforeHead;
  const std::uint32_t from = what == CardFailure::kNormedBeforeExperts || layer == 0 ? layer : layer - 1;
  ResidualArgs args;
  args.x = step<float>(at_.x);
  args.n_rows = size_.n_rows;
  args.n = model_.d_model;
  if (pending == Pending::kAttention) args.delta = step<float>(at_.delta);
  const bool beside_legs = pending == Pending::kLegs || pending == Pending::kLegsAndExperts;
  if (pending == Pending::kExperts || pending == Pending::kLegsAndExperts || pending == Pending::kSumsAndExperts)
    args.experts = {step<float>(at_.out), step<std::int32_t>(at_.slots), step<float>(at_.weights), model_.top_k};
  if (pending == Pending::kSums || pending == Pending::kSumsAndExperts) args.sums = step<std::int64_t>(at_.sums);
  if (beside_legs) {
    args.sums = reinterpret_cast<const std::int64_t*>(pinned_.sums.data());
    args.sums_flag = {flag(from, Flag::kSums), step<std::uint32_t>(at_.step)};
  }
  args.shift = model_.shift;
  args.experts_code = code(from, CardFailure::kExperts);
  args.added_code = code(
      from, pending == Pending::kAttention ? CardFailure::kResidualAfterAttention : CardFailure::kResidualAfterExperts);
  args.eps = model_.norm_eps;
  args.failures = step<std::uint32_t>(at_.failures);
  if (!is_head) {
    const TrunkWeights::Layer& weights = weights_.layers[layer];
    args.w = weight<float>(what == CardFailure::kNormedBeforeExperts ? weights.expert_norm : weights.attention_norm);
    args.normed_code = code(layer, what);
    args.h = step<float>(at_.h);
    std::size_t n_forms = 0;
    for (const auto& [activation, rows] :
         {std::pair{ActivationClass::kA8x32, at_.rows_32}, std::pair{ActivationClass::kA8x256, at_.rows_256}})
      if (wants_[static_cast<std::size_t>(activation)])
        args.out[n_forms++] = {activation, step<std::byte>(rows),
                               card_row_layout(block_values(activation), model_.d_model).bytes};
  }
  return args;  // a head's norm is made by queue_logits()
}

GemvArgs CudaTrunk::product_of(const HostMatrix& matrix, const Rows& x, float* y) {
  GemvArgs args;
  args.type = matrix.type;
  args.weight_rows = matrix.rows;
  args.cols = matrix.cols;
  args.x = x.at;
  args.x_stride = x.stride;
  args.y = y;
  args.y_stride = matrix.rows;
  return args;
}

Status CudaTrunk::multiply(const HostMatrix& matrix, std::uint64_t weights, const Rows& x, std::uint32_t n_rows,
                           float* y) const {
  return gemv_one(stream_, product_of(matrix, x, y), {weight<std::byte>(weights), 0, n_rows});
}

Status CudaTrunk::project(std::uint32_t layer) {
  const CardTrunkLayer& model = model_.layers[layer];
  const TrunkWeights::Layer& weights = weights_.layers[layer];
  const auto product = [&](const HostMatrix& matrix, std::uint64_t at, std::uint64_t y) {
    const GemvArgs args = product_of(matrix, rows_of_h(matrix.type), step<float>(y));
    return GemvOfMany{args, {weight<std::byte>(at), 0, size_.n_rows}};
  };
  return gemv_together(stream_, std::array{product(model.q, weights.q, at_.q), product(model.k, weights.k, at_.k),
                                           product(model.v, weights.v, at_.v)});
}

HeadsArgs CudaTrunk::heads_args(std::uint32_t layer) const {
  const CardTrunkLayer& model = model_.layers[layer];
  const TrunkWeights::Layer& weights = weights_.layers[layer];
  HeadsArgs args;
  args.q = step<float>(at_.q);
  args.k = step<float>(at_.k);
  args.v = step<float>(at_.v);
  args.n_rows = size_.n_rows;
  args.n_heads = model_.n_heads;
  if (model.q_norm != nullptr) args.q_norm = weight<float>(weights.q_norm);
  if (model.k_norm != nullptr) args.k_norm = weight<float>(weights.k_norm);
  args.eps = model_.attention_norm_eps;
  args.n_rot = model_.n_rot;
  args.cosines = step<float>(at_.cosines);
  args.sines = step<float>(at_.sines);
  args.pairing = model_.pairing;
  args.cache = cache_of(layer);
  args.streams = step<std::uint32_t>(at_.tables);
  args.positions = step<std::uint32_t>(at_.positions);
  args.queries_code = code(layer, CardFailure::kQueries);
  args.keys_code = code(layer, CardFailure::kKeys);
  args.values_code = code(layer, CardFailure::kValues);
  args.failures = step<std::uint32_t>(at_.failures);
  return args;
}

AttentionArgs CudaTrunk::attention_args(const HeadsArgs& heads) const {
  AttentionArgs args;
  args.cache = heads.cache;
  args.q = heads.q;
  args.q_stride = std::size_t{model_.n_heads} * model_.key_dim;
  args.streams = heads.streams;
  args.n_keys = step<std::uint32_t>(at_.n_keys);
  args.n_rows = size_.n_rows;
  args.n_heads = model_.n_heads;
  args.max_keys = size_.most_keys;
  // Of the step: a later part's row may go on from a key that an earlier one wrote a moment ago.
  args.rows_are_alone = size_.n_tables == size_.n_rows && now_->first_row == 0;
  args.scale = model_.score_scale;
  args.scratch = step<float>(at_.partials);
  args.scratch_bytes = at_.partials_bytes;
  return args;
}

Status CudaTrunk::attend(std::uint32_t layer) {
  const HostMatrix& output = model_.layers[layer].output;
  const std::uint32_t stride = card_row_bytes(output.type, output.cols);
  const HeadsArgs heads = heads_args(layer);
  AttentionRows rows;
  rows.out = {gemv_activation(output.type), step<std::byte>(at_.o), stride};
  rows.code = code(layer, CardFailure::kAttention);
  rows.failures = heads.failures;
  const HeadsAndAttentionArgs both{heads, attention_args(heads), rows};
  if (has_heads_and_attention(stream_, both)) {
    TERRACE_RETURN_IF_ERROR(heads_and_attention(stream_, both));
  } else {
    TERRACE_RETURN_IF_ERROR(finish_heads(stream_, heads));
    TERRACE_RETURN_IF_ERROR(kernels::cuda::attend(stream_, both.attention, rows));
  }
  return multiply(output, weights_.layers[layer].output, {step<std::byte>(at_.o), stride}, size_.n_rows,
                  step<float>(at_.delta));
}

// From attention's results to the layer's choice of experts.
Status CudaTrunk::norm_and_choose(std::uint32_t layer, bool with_pairs) {
  const HostMatrix& router = model_.layers[layer].router;
  const std::uint64_t weights = weights_.layers[layer].router;
  const ResidualAndChoiceArgs args{norm_args(layer, Pending::kAttention, CardFailure::kNormedBeforeExperts),
                                   weight<float>(weights), choice_args(layer, with_pairs)};
  if (router.type == TensorType::kF32 && has_residual_and_choice(stream_, args))
    return residual_and_choice(stream_, args);
  TERRACE_RETURN_IF_ERROR(residual(stream_, args.residual));
  TERRACE_RETURN_IF_ERROR(multiply(router, weights, rows_of_h(router.type), size_.n_rows, step<float>(at_.choices)));
  return choose_experts(stream_, args.choice);
}

ChooseArgs CudaTrunk::choice_args(std::uint32_t layer, bool with_pairs) const {
  ChooseArgs args;
  args.logits = step<float>(at_.choices);
  args.n_rows = size_.n_rows;
  args.n_experts = model_.n_experts;
  args.top_k = model_.top_k;
  args.scaled = model_.scales_weights;
  args.scale = model_.expert_scale;
  args.ids = step<std::uint16_t>(ids_at(layer));
  args.weights = step<float>(at_.weights);
  args.router_code = code(layer, CardFailure::kRouter);
  args.failures = step<std::uint32_t>(at_.failures);
  if (with_pairs) {
    args.slabs = weight<CardSlab>(weights_.slabs) + std::size_t{layer} * model_.n_experts;
    args.gate_up = step<GemvGroup>(at_.gate_up_groups);
    args.down = step<GemvGroup>(at_.down_groups);
    args.x_rows = step<std::uint32_t>(at_.x_rows);
    args.slots = step<std::int32_t>(at_.slots);
  }
  return args;
}

Status CudaTrunk::experts(std::uint32_t layer) {
  const ExpertShape& shape = model_.layers[layer].experts;
  const std::uint32_t n_pairs = size_.n_rows * model_.top_k, n_groups = std::min(n_pairs, model_.n_experts);
  GemvArgs gate;
  gate.type = shape.gate;
  gate.weight_rows = shape.ff;
  gate.cols = shape.d_model;
  gate.groups = step<GemvGroup>(at_.gate_up_groups);
  gate.max_rows = size_.n_rows;
  gate.gemm_from = kManyRowsOfExpert * model_.n_experts / model_.top_k;  // in rows of the step
  gate.x_rows = step<std::uint32_t>(at_.x_rows);
  gate.y = step<float>(at_.gate_up);
  gate.y_stride = shape.ff;
  GemvArgs up = gate;
  up.type = shape.up;
  up.groups += n_groups;
  for (GemvArgs* args : {&gate, &up}) {
    const Rows x = rows_of_h(args->type);
    args->x = x.at;
    args->x_stride = x.stride;
    args->n_groups = shape.gate == shape.up ? 2 * n_groups : n_groups;
  }
  TERRACE_RETURN_IF_ERROR(expert_gemv(stream_, gate));
  if (shape.gate != shape.up) TERRACE_RETURN_IF_ERROR(expert_gemv(stream_, up));

  GemvArgs down;
  down.type = shape.down;
  down.weight_rows = shape.d_model;
  down.cols = shape.ff;
  down.groups = step<GemvGroup>(at_.down_groups);
  down.n_groups = n_groups;
  down.max_rows = size_.n_rows;
  down.gemm_from = gate.gemm_from;
  down.y = step<float>(at_.out);
  down.y_stride = shape.d_model;
  const float* const ups = gate.y + std::size_t{n_pairs} * shape.ff;
  const std::uint32_t failed = code(layer, CardFailure::kExperts);
  auto* const failures = step<std::uint32_t>(at_.failures);
  TERRACE_ASSIGN_OR_RETURN(const bool makes_its_rows, has_expert_down(stream_, down));
  if (makes_its_rows) return expert_down(stream_, {down, gate.y, ups, gate.x_rows, failed, failures});

  ExpertRowsArgs between;
  between.gate = gate.y;
  between.up = ups;
  between.n_pairs = n_pairs;
  between.n = shape.ff;
  between.out = {gemv_activation(shape.down), step<std::byte>(at_.between), card_row_bytes(shape.down, shape.ff)};
  between.x_rows = gate.x_rows;
  between.code = failed;
  between.failures = failures;
  TERRACE_RETURN_IF_ERROR(expert_rows(stream_, between));
  down.x = between.out.rows;
  down.x_stride = between.out.stride;
  return expert_gemv(stream_, down);
}

}  // namespace terrace::kernels::cuda
