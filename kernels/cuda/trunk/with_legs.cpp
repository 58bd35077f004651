// Steps of which other legs compute experts: rows and choices go to the host and sums come back, within one launch of a
// step beside flags, or layer by layer.
#include <fmt/core.h>

#include <atomic>
#include <utility>

#include "kernels/cuda/trunk/trunk.h"

namespace terrace::kernels::cuda {
namespace {

// Looks at a flag between two looks at whether the card is still at work.
constexpr int kLooks = 4096;

}  // namespace

// ---- beside other legs ----------------------------------------------------------------------------------------------

std::uint32_t* CudaTrunk::flag(std::uint32_t layer, Flag which) const {
  const std::size_t line = 2 * std::size_t{layer} + (which == Flag::kSums ? 1 : 0);
  return reinterpret_cast<std::uint32_t*>(pinned_.flags.data() + line * kFlagBytes);
}

void CudaTrunk::raise(std::uint32_t layer) {
  std::atomic_ref(*flag(layer, Flag::kSums)).store(started_steps_, std::memory_order_release);
}

Status CudaTrunk::queue_hand_over(std::uint32_t layer) {
  HandOverArgs args;
  args.rows = step<float>(at_.h);
  args.ids = step<std::uint16_t>(ids_at(layer));
  args.weights = step<float>(at_.weights);
  args.n_values = size_.n_rows * model_.d_model;
  args.n_choices = size_.n_rows * model_.top_k;
  args.host_rows = reinterpret_cast<float*>(host_rows());
  args.host_ids = reinterpret_cast<std::uint16_t*>(back(ids_at(layer)));
  args.host_weights = reinterpret_cast<float*>(back(at_.weights));
  args.flag = {flag(layer, Flag::kRows), step<std::uint32_t>(at_.step)};
  return hand_over(stream_, args);
}

Status CudaTrunk::queue_beside_legs(bool has_experts) {
  TERRACE_RETURN_IF_ERROR(queue_input());
  const Pending pending = has_experts ? Pending::kLegsAndExperts : Pending::kLegs;
  const auto n_layers = static_cast<std::uint32_t>(model_.layers.size());
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    TERRACE_RETURN_IF_ERROR(queue_attention(layer, layer == 0 ? Pending::kNothing : pending));
    TERRACE_RETURN_IF_ERROR(norm_and_choose(layer, has_experts));
    TERRACE_RETURN_IF_ERROR(queue_hand_over(layer));
    if (has_experts) TERRACE_RETURN_IF_ERROR(experts(layer));
  }
  return queue_head(pending);
}

Status CudaTrunk::start(std::span<const SlabView> slabs) {
  TERRACE_CHECK(starts(size_), "a step of this size goes layer by layer");
  if (!slabs.empty()) TERRACE_RETURN_IF_ERROR(place(slabs));
  ++started_steps_;
  *reinterpret_cast<std::uint32_t*>(pinned_.in.data() + (at_.step - at_.x)) = started_steps_;
  is_started_ = true;
  const bool has_experts = !slabs.empty();
  const Status started = replay_or_queue(Piece::kBesideLegs, 0, has_experts ? Pending::kLegsAndExperts : Pending::kLegs,
                                         [&] { return queue_beside_legs(has_experts); });
  if (!started.ok()) give_up();  // some of it may run
  return started;
}

CardRoutedRows CudaTrunk::routed_rows(std::uint32_t layer) const {
  return {reinterpret_cast<const float*>(host_rows()), reinterpret_cast<const std::uint16_t*>(back(ids_at(layer))),
          reinterpret_cast<const float*>(back(at_.weights))};
}

Result<CardRoutedRows> CudaTrunk::routed(std::uint32_t layer, GiveWay give_way) {
  const std::atomic_ref word(*flag(layer, Flag::kRows));
  while (true) {
    for (int look = 0; look < kLooks; ++look)
      if (word.load(std::memory_order_acquire) == started_steps_) return routed_rows(layer);
    if (give_way != nullptr) give_way();
    TERRACE_ASSIGN_OR_RETURN(const bool done, stream_.is_done());
    if (done && word.load(std::memory_order_acquire) != started_steps_)
      return Error(ErrorCode::kInternal, fmt::format("card {} ({}): a step ended before layer {}", stream_.card().index,
                                                     stream_.card().name, layer));
  }
}

void CudaTrunk::give_sums(std::uint32_t layer) { raise(layer); }

void CudaTrunk::give_up() {
  if (std::exchange(is_started_, false))
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer) raise(layer);
  (void)stream_.synchronize();
  for (const ToHost& to : to_host_) (void)to.stream.synchronize();
}

// ---- layer by layer -------------------------------------------------------------------------------------------------

Status CudaTrunk::queue_sums() {
  return stream_.copy_to_card(step<std::byte>(at_.sums), host_sums(),
                              std::size_t{size_.n_rows} * model_.d_model * sizeof(std::int64_t));
}

// Until the layer's rows and choices are made.
Status CudaTrunk::queue_to_routed(std::uint32_t layer, bool has_experts) {
  if (layer == 0) TERRACE_RETURN_IF_ERROR(queue_input());
  if (now_->pending != Pending::kNothing) TERRACE_RETURN_IF_ERROR(queue_sums());
  TERRACE_RETURN_IF_ERROR(queue_attention(layer, now_->pending));
  return norm_and_choose(layer, has_experts);
}

Status CudaTrunk::queue_to_host(const ToHost& to, std::uint32_t layer) {
  const std::size_t n_choices = std::size_t{size_.n_rows} * model_.top_k;
  const std::uint64_t ids = ids_at(layer);
  TERRACE_RETURN_IF_ERROR(stream_.record(to.made));
  TERRACE_RETURN_IF_ERROR(to.stream.wait(to.made));
  TERRACE_RETURN_IF_ERROR(to.stream.copy_to_host(host_rows(), step<std::byte>(at_.h),
                                                 std::size_t{size_.n_rows} * model_.d_model * sizeof(float)));
  TERRACE_RETURN_IF_ERROR(
      to.stream.copy_to_host(back(at_.weights), step<std::byte>(at_.weights), n_choices * sizeof(float)));
  TERRACE_RETURN_IF_ERROR(to.stream.copy_to_host(back(ids), step<std::byte>(ids), n_choices * sizeof(std::uint16_t)));
  copied_ = &to.copied;
  return to.stream.record(to.copied);
}

// The parts make their rows in the same place: one's are copied before the next one's are made.
Status CudaTrunk::queue_layer(std::uint32_t part, std::uint32_t layer, std::span<const SlabView> slabs) {
  use(part);
  const bool has_experts = !slabs.empty();
  if (has_experts) TERRACE_RETURN_IF_ERROR(place(slabs));
  if (copied_ != nullptr) TERRACE_RETURN_IF_ERROR(stream_.wait(*copied_));
  TERRACE_RETURN_IF_ERROR(replay_or_queue(has_experts ? Piece::kAttentionAndPairs : Piece::kAttention, layer,
                                          now_->pending, [&] { return queue_to_routed(layer, has_experts); }));
  TERRACE_RETURN_IF_ERROR(queue_to_host(to_host_[part], layer));
  if (has_experts) TERRACE_RETURN_IF_ERROR(experts(layer));
  now_->layer = layer;
  now_->pending = has_experts ? Pending::kSumsAndExperts : Pending::kSums;
  return {};
}

Result<std::optional<CardRoutedRows>> CudaTrunk::poll_routed(std::uint32_t part) {
  TERRACE_ASSIGN_OR_RETURN(const bool done, to_host_[part].stream.is_done());
  if (!done) return std::optional<CardRoutedRows>();
  use(part);
  return std::optional(routed_rows(now_->layer));
}

Result<CardRoutedRows> CudaTrunk::wait_routed(std::uint32_t part) {
  TERRACE_RETURN_IF_ERROR(to_host_[part].copied.synchronize());
  use(part);
  return routed_rows(now_->layer);
}

std::span<std::int64_t> CudaTrunk::sums_of(std::uint32_t part) {
  use(part);
  return {reinterpret_cast<std::int64_t*>(host_sums()), std::size_t{size_.n_rows} * model_.d_model};
}

Result<const float*> CudaTrunk::add_and_read(std::uint32_t layer) {
  TERRACE_RETURN_IF_ERROR(queue_sums());
  TERRACE_RETURN_IF_ERROR(norm(layer + 1, Pending::kSums, CardFailure::kNormedBeforeHead));
  now_->pending = Pending::kNothing;
  TERRACE_RETURN_IF_ERROR(stream_.copy_to_host(host_rows(), step<std::byte>(at_.x),
                                               std::size_t{size_.n_rows} * model_.d_model * sizeof(float)));
  TERRACE_RETURN_IF_ERROR(stream_.synchronize());
  return reinterpret_cast<const float*>(host_rows());
}

Result<CardStepResult> CudaTrunk::head(std::uint32_t part) {
  use(part);
  const auto queue = [&]() -> Status {
    if (now_->pending != Pending::kNothing) TERRACE_RETURN_IF_ERROR(queue_sums());
    return queue_head(now_->pending);
  };
  TERRACE_RETURN_IF_ERROR(replay_or_queue(Piece::kHead, 0, now_->pending, queue));
  return finish();
}

}  // namespace terrace::kernels::cuda
