#include "kernels/cuda/trunk/trunk.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/card/expert_card.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "kernels/cuda/expert_gemv/plan.h"
#include "kernels/cuda/greedy/greedy.h"
#include "kernels/cuda/weights/card_rows.h"

namespace terrace::kernels::cuda {
namespace {

// Streams that decode. More rows come in too many sizes, and their launches hide behind their kernels.
constexpr std::uint32_t kMostReplayedRows = 16;
constexpr std::uint32_t kMostPairs = 65535;

static_assert(sizeof(CardSlab) == sizeof(SlabView), "a table of slabs is copied as it is");

Error unsupported(const CardInfo& card, std::string_view what) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("card {} ({}) computes no trunk with {}", card.index, card.name, what));
}

// At one row and at many a matrix is computed differently.
Status check_matrix(const CardInfo& card, TensorType type, std::uint32_t rows, std::uint32_t cols) {
  if (!has_gemv(type)) return unsupported(card, fmt::format("{} matrices", info(type).name));
  for (const std::uint32_t max_rows : {1u, 8u})
    TERRACE_RETURN_IF_ERROR(plan_gemv({type, gemv_activation(type), 16, rows, cols, 1, max_rows},
                                      {card.multiprocessors, card.shared_bytes_per_block}));
  return {};
}

Status check_layer(const CardInfo& card, const CardTrunkLayer& layer) {
  for (const HostMatrix& matrix : {layer.q, layer.k, layer.v, layer.output, layer.router})
    TERRACE_RETURN_IF_ERROR(check_matrix(card, matrix.type, matrix.rows, matrix.cols));
  const ExpertShape& experts = layer.experts;
  TERRACE_RETURN_IF_ERROR(check_matrix(card, experts.gate, experts.ff, experts.d_model));
  TERRACE_RETURN_IF_ERROR(check_matrix(card, experts.up, experts.ff, experts.d_model));
  return check_matrix(card, experts.down, experts.d_model, experts.ff);
}

}  // namespace

Status check_trunk(const CardInfo& card, const CardTrunkModel& model, const CardTrunkLimits& limits) {
  if (model.d_model > kMaxResidualValues || model.d_model % 4 != 0)
    return unsupported(card, fmt::format("rows of {} values", model.d_model));
  if (model.key_dim > kMaxHeadValues || model.value_dim > kMaxHeadValues)
    return unsupported(card, fmt::format("heads of {} and {} values", model.key_dim, model.value_dim));
  if (model.n_experts > kMaxChosenExperts) return unsupported(card, fmt::format("{} experts", model.n_experts));
  if (std::uint64_t{limits.max_rows} * model.top_k > kMostPairs)
    return unsupported(card, fmt::format("steps of {} rows (--batch)", limits.max_rows));
  for (const CardTrunkLayer& layer : model.layers) TERRACE_RETURN_IF_ERROR(check_layer(card, layer));
  return check_matrix(card, model.head.type, model.head.rows, model.head.cols);
}

Result<std::unique_ptr<CudaTrunk>> CudaTrunk::make(const Card& card, CardWriter& writer, CardTrunkModel model,
                                                   const CardTrunkLimits& limits, std::span<std::byte> memory,
                                                   const LoadProgress& on_progress) {
  TERRACE_CHECK(trunk_bytes(model, limits) <= memory.size(), "card memory for the trunk");
  const TrunkPinned at = lay_out_pinned(model, limits);
  TERRACE_ASSIGN_OR_RETURN(Stream stream, card.make_stream());
  TERRACE_ASSIGN_OR_RETURN(Event begin, card.make_event());
  TERRACE_ASSIGN_OR_RETURN(Event end, card.make_event());
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer in, card.make_pinned(at.in));
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer back, card.make_pinned(at.back));
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer sums, card.make_pinned(at.sums));
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer flags, card.make_pinned(at.flags));
  std::memset(flags.data(), 0, flags.size());
  Pinned pinned{std::move(in), std::move(back), std::move(sums), std::move(flags)};
  std::vector<ToHost> to_host;
  for (std::uint32_t part = 0; part < limits.max_parts; ++part) {
    TERRACE_ASSIGN_OR_RETURN(Stream copies, card.make_stream());
    TERRACE_ASSIGN_OR_RETURN(Event made, card.make_event());
    TERRACE_ASSIGN_OR_RETURN(Event copied, card.make_event_to_sleep_for());
    to_host.push_back({std::move(copies), std::move(made), std::move(copied)});
  }
  std::unique_ptr<CudaTrunk> trunk(new CudaTrunk(std::move(stream), {std::move(begin), std::move(end)},
                                                 std::move(to_host), std::move(pinned), std::move(model), limits,
                                                 memory));
  TERRACE_RETURN_IF_ERROR(trunk->upload(writer, on_progress));
  return trunk;
}

CudaTrunk::CudaTrunk(Stream stream, Events events, std::vector<ToHost> to_host, Pinned pinned, CardTrunkModel model,
                     const CardTrunkLimits& limits, std::span<std::byte> memory)
    : stream_(std::move(stream)),
      events_(std::move(events)),
      to_host_(std::move(to_host)),
      pinned_(std::move(pinned)),
      model_(std::move(model)),
      limits_(limits),
      memory_(memory),
      weights_(lay_out_weights(model_, 0)),
      cache_(lay_out_cache(model_, limits_, weights_.end)),
      pinned_at_(lay_out_pinned(model_, limits_)),
      room_(room_for_steps(model_, limits_)),
      parts_(limits_.max_parts),
      now_(parts_.data()) {
  const auto want = [this](TensorType type) { wants_[static_cast<std::size_t>(gemv_activation(type))] = true; };
  for (const CardTrunkLayer& layer : model_.layers)
    for (const TensorType type :
         {layer.q.type, layer.k.type, layer.v.type, layer.router.type, layer.experts.gate, layer.experts.up})
      want(type);
}

// A step that failed may still run.
CudaTrunk::~CudaTrunk() { give_up(); }

Status CudaTrunk::upload(CardWriter& writer, const LoadProgress& on_progress) {
  Status status;
  const auto write = [&](std::uint64_t at, const void* data, std::uint64_t bytes) {
    if (data == nullptr || !status.ok()) return;
    status = writer.queue(weight<std::byte>(at), {static_cast<const std::byte*>(data), bytes});
    if (on_progress) on_progress(at + bytes, weights_.slabs);
  };
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const CardTrunkLayer& layer = model_.layers[i];
    const TrunkWeights::Layer& at = weights_.layers[i];
    write(at.attention_norm, layer.attention_norm, model_.d_model * sizeof(float));
    write(at.q, layer.q.data, layer.q.bytes());
    write(at.k, layer.k.data, layer.k.bytes());
    write(at.v, layer.v.data, layer.v.bytes());
    write(at.q_norm, layer.q_norm, model_.key_dim * sizeof(float));
    write(at.k_norm, layer.k_norm, model_.key_dim * sizeof(float));
    write(at.output, layer.output.data, layer.output.bytes());
    write(at.expert_norm, layer.expert_norm, model_.d_model * sizeof(float));
    write(at.router, layer.router.data, layer.router.bytes());
  }
  write(weights_.output_norm, model_.output_norm, model_.d_model * sizeof(float));
  write(weights_.head, model_.head.data, model_.head.bytes());
  if (status.ok()) status = writer.finish();
  return status;
}

// ---- a step ---------------------------------------------------------------------------------------------------------

CardStepInput CudaTrunk::begin_part(const CardStepSize& size, std::uint32_t part) {
  TERRACE_CHECK(!is_started_, "a step begins before the started one has ended");
  TERRACE_CHECK(part < parts_.size(), "more parts than the limits");
  StepPart& now = parts_[part];
  now = {};
  now.size = size;
  if (part == 0 && is_replayed(size)) now.size.most_keys = keys_of_graph(size.most_keys, limits_.context);
  StepPlace place{0, room_.own};
  if (part > 0) {
    const StepPart& before = parts_[part - 1];
    place.own = before.at.own_end;
    now.in_at = before.in_at + before.at.in_bytes;
    now.back_at = before.back_at + (before.at.own_end - before.at.weights);
    now.first_row = before.first_row + before.size.n_rows;
  }
  now.at = lay_out_step(model_, limits_, now.size, place);
  TERRACE_CHECK(now.at.own_end <= room_.own && now.at.end <= room_.bytes(), "a step larger than the limits");
  use(part);
  const auto in = [&]<class T>(T*& pointer, std::uint64_t offset) {
    pointer = reinterpret_cast<T*>(pinned_.in.data() + now.in_at + (offset - at_.x));
  };
  CardStepInput input;
  in(input.x, at_.x);
  in(input.cosines, at_.cosines);
  in(input.sines, at_.sines);
  in(input.positions, at_.positions);
  in(input.n_keys, at_.n_keys);
  in(input.tables, at_.tables);
  in(input.wanted, at_.wanted);
  in(input.blocks, at_.blocks);
  input.blocks_stride = (limits_.context + kKvBlockPositions - 1) / kKvBlockPositions;
  return input;
}

// What follows is queued of this part.
void CudaTrunk::use(std::uint32_t part) {
  now_ = &parts_[part];
  size_ = now_->size;
  at_ = now_->at;
}

bool CudaTrunk::is_replayed(const CardStepSize& size) {
  return size.n_rows <= kMostReplayedRows && size.n_wanted <= kHeadRows;
}

// Its kernels wait for the other legs, however long those take: a driver that ends kernels which run for seconds would
// take the card away.
bool CudaTrunk::starts(const CardStepSize& size) const {
  return !stream_.card().ends_long_kernels && is_replayed(size);
}

// Where what is captured lies: parts behind the first begin where those before them end, and are not.
Status CudaTrunk::replay_or_queue(Piece piece, std::uint32_t layer, Pending pending, FunctionRef<Status()> queue) {
  if (!is_replayed(size_) || now_ != parts_.data()) return queue();
  const ReplayKey key = {static_cast<std::uint32_t>(piece),
                         layer,
                         static_cast<std::uint32_t>(pending),
                         size_.n_rows,
                         size_.n_tables,
                         size_.n_wanted,
                         size_.most_keys};
  Graph* graph = replays_.find(key);
  if (graph == nullptr) {
    // Earlier layers of this step may run, so they are waited for before a replay goes. Nothing that may run waits for
    // this thread: a step beside legs begins on a stream that is idle, and pieces of one layer wait for the card alone.
    std::optional<Graph> captured;
    const Status made = make_in_place_of_oldest(
        replays_,
        [&]() -> Status {
          TERRACE_ASSIGN_OR_RETURN(captured, Graph::capture(stream_, queue));
          return {};
        },
        [this] { return stream_.synchronize(); });
    // Beside legs a step is never queued as it is: the card waits for flags that this thread raises, and a launch waits
    // where a thousand are pending.
    if (!made.ok() && made.error().code() == ErrorCode::kOutOfMemory && piece != Piece::kBesideLegs) return queue();
    TERRACE_RETURN_IF_ERROR(made);
    graph = &replays_.add(key, std::move(*captured));
  }
  return graph->launch(stream_);
}

Status CudaTrunk::queue_input() {
  TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(step<std::byte>(at_.x), pinned_.in.data() + now_->in_at, at_.in_bytes));
  return stream_.fill(step<std::byte>(at_.failures), 0xff, at_.ids - at_.failures);
}

// What comes before the layer's second norm.
Status CudaTrunk::queue_attention(std::uint32_t layer, Pending pending) {
  TERRACE_RETURN_IF_ERROR(norm(layer, pending, CardFailure::kNormedBeforeAttention));
  TERRACE_RETURN_IF_ERROR(project(layer));
  return attend(layer);
}

Status CudaTrunk::queue_whole() {
  TERRACE_RETURN_IF_ERROR(queue_input());
  const auto n_layers = static_cast<std::uint32_t>(model_.layers.size());
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    TERRACE_RETURN_IF_ERROR(queue_attention(layer, layer == 0 ? Pending::kNothing : Pending::kExperts));
    TERRACE_RETURN_IF_ERROR(norm_and_choose(layer, true));
    TERRACE_RETURN_IF_ERROR(experts(layer));
  }
  return queue_head(Pending::kExperts);
}

Status CudaTrunk::queue_head(Pending pending) {
  const auto n_layers = static_cast<std::uint32_t>(model_.layers.size());
  if (pending != Pending::kNothing) TERRACE_RETURN_IF_ERROR(norm(n_layers, pending, CardFailure::kNormedBeforeHead));
  if (size_.n_wanted > kHeadRows) return {};  // finish_many_logits()
  if (size_.n_wanted > 0) TERRACE_RETURN_IF_ERROR(queue_logits(0, size_.n_wanted));
  return queue_failures();
}

Status CudaTrunk::queue_failures() {
  return stream_.copy_to_host(back(at_.failures), step<std::byte>(at_.failures), at_.back_bytes());
}

// Logits of n of the rows that want them, to pinned memory.
Status CudaTrunk::queue_logits(std::uint32_t first, std::uint32_t n) {
  const auto n_layers = static_cast<std::uint32_t>(model_.layers.size());
  const Rows x = rows_of_h(model_.head.type);
  ResidualArgs normed;
  normed.x = step<float>(at_.x);
  normed.rows = step<std::uint32_t>(at_.wanted) + first;
  normed.n_rows = n;
  normed.n = model_.d_model;
  normed.w = weight<float>(weights_.output_norm);
  normed.eps = model_.norm_eps;
  normed.normed_code = code(n_layers, CardFailure::kNormedBeforeHead);
  normed.out[0] = {gemv_activation(model_.head.type), const_cast<std::byte*>(x.at), x.stride};
  normed.failures = step<std::uint32_t>(at_.failures);
  TERRACE_RETURN_IF_ERROR(residual(stream_, normed));
  float* const logits = step<float>(at_.logits);
  TERRACE_RETURN_IF_ERROR(multiply(model_.head, weights_.head, x, n, logits));
  GreedyArgs greedy;
  greedy.logits = logits;
  greedy.stride = greedy.n = model_.vocabulary;
  greedy.n_rows = n;
  greedy.best = step<GreedyKey>(at_.greedy) + first;
  greedy.failures = normed.failures;
  greedy.code = code(n_layers, CardFailure::kLogits);
  greedy.rows = normed.rows;
  TERRACE_RETURN_IF_ERROR(find_greedy(stream_, greedy));
  return stream_.copy_to_host(pinned_.back.data() + pinned_at_.back_logits, logits,
                              std::size_t{n} * model_.vocabulary * sizeof(float));
}

Status CudaTrunk::finish_many_logits() {
  many_logits_.resize(std::size_t{size_.n_wanted} * model_.vocabulary);
  for (std::uint32_t first = 0; first < size_.n_wanted; first += kHeadRows) {
    const std::uint32_t n = std::min(kHeadRows, size_.n_wanted - first);
    TERRACE_RETURN_IF_ERROR(queue_logits(first, n));
    TERRACE_RETURN_IF_ERROR(stream_.synchronize());
    std::memcpy(many_logits_.data() + std::size_t{first} * model_.vocabulary,
                pinned_.back.data() + pinned_at_.back_logits, std::size_t{n} * model_.vocabulary * sizeof(float));
  }
  return queue_failures();
}

Result<CardStepResult> CudaTrunk::finish() {
  is_started_ = false;
  const bool many = size_.n_wanted > kHeadRows;
  if (many) TERRACE_RETURN_IF_ERROR(finish_many_logits());
  TERRACE_RETURN_IF_ERROR(stream_.synchronize());
  collect_failures();
  collect_largest();
  CardStepResult result;
  result.logits =
      many ? many_logits_.data() : reinterpret_cast<const float*>(pinned_.back.data() + pinned_at_.back_logits);
  result.n_logits = size_.n_wanted;
  result.experts = reinterpret_cast<const std::uint16_t*>(back(at_.ids));
  result.largest = largest_;
  result.failures = failures_;
  return result;
}

void CudaTrunk::collect_largest() {
  largest_.clear();
  const auto* keys = reinterpret_cast<const GreedyKey*>(back(at_.greedy));
  for (std::uint32_t i = 0; i < size_.n_wanted; ++i)
    largest_.push_back(static_cast<std::int32_t>(greedy_token(keys[i]).value_or(0)));
}

void CudaTrunk::collect_failures() {
  failures_.clear();
  const auto* codes = reinterpret_cast<const std::uint32_t*>(back(at_.failures));
  for (std::uint32_t row = 0; row < size_.n_rows; ++row)
    if (codes[row] != kNoFailure)
      failures_.push_back({row, codes[row] / 16, static_cast<CardFailure>(codes[row] % 16)});
}

Status CudaTrunk::place(std::span<const SlabView> slabs) {
  TERRACE_CHECK(slabs.size() == model_.layers.size() * model_.n_experts, "a slab for every expert");
  if (slabs.data() == slabs_) return {};
  TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(weight<std::byte>(weights_.slabs), slabs.data(), slabs.size_bytes()));
  TERRACE_RETURN_IF_ERROR(stream_.synchronize());
  slabs_ = slabs.data();
  return {};
}

Result<CardStepResult> CudaTrunk::run(std::span<const SlabView> slabs) {
  TERRACE_RETURN_IF_ERROR(place(slabs));
  TERRACE_RETURN_IF_ERROR(stream_.record(events_.begin));
  TERRACE_RETURN_IF_ERROR(replay_or_queue(Piece::kWhole, 0, Pending::kExperts, [this] { return queue_whole(); }));
  TERRACE_RETURN_IF_ERROR(stream_.record(events_.end));
  TERRACE_ASSIGN_OR_RETURN(CardStepResult result, finish());
  TERRACE_ASSIGN_OR_RETURN(const float milliseconds, events_.end.milliseconds_since(events_.begin));
  result.compute_ns = static_cast<std::uint64_t>(double{milliseconds} * 1e6);
  return result;
}

Status CudaTrunk::copy_block(std::uint32_t to, std::uint32_t from) {
  for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
    std::byte* const k = weight<std::byte>(cache_.k + layer * cache_.k_layer_bytes);
    std::byte* const v = weight<std::byte>(cache_.v + layer * cache_.v_layer_bytes);
    TERRACE_RETURN_IF_ERROR(
        stream_.copy_on_card(k + to * cache_.k_block_bytes, k + from * cache_.k_block_bytes, cache_.k_block_bytes));
    TERRACE_RETURN_IF_ERROR(
        stream_.copy_on_card(v + to * cache_.v_block_bytes, v + from * cache_.v_block_bytes, cache_.v_block_bytes));
  }
  return {};
}

}  // namespace terrace::kernels::cuda
