#include "kernels/cuda/experts/cuda_card.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/units.h"
#include "kernels/cuda/device/read_rate.h"
#include "kernels/cuda/expert_gemv/plan.h"
#include "kernels/cuda/experts/executor.h"
#include "kernels/cuda/experts/multiplier.h"
#include "kernels/cuda/experts/open.h"
#include "kernels/cuda/experts/plan.h"
#include "kernels/cuda/experts/writer.h"
#include "kernels/cuda/trunk/trunk.h"

namespace terrace::kernels::cuda {
namespace {

// Enough that a card's caches hold little of it, and read in a millisecond.
constexpr std::uint64_t kReadAtOnce = std::uint64_t{4} << 30;

WorkspaceBytes workspace_of(const CardFacts& facts) {
  return {card_workspace_bytes(facts.budget_bytes) / Card::kAlignment * Card::kAlignment,
          card_staging_bytes(facts.budget_bytes)};
}

Result<std::uint64_t> default_budget(int index) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<CardInfo> cards, list_cards());
  if (static_cast<std::size_t>(index) >= cards.size()) return std::uint64_t{0};  // Card::open() says it
  const CardInfo& card = cards[static_cast<std::size_t>(index)];
  return default_budget_bytes(card.free_bytes, card.integrated);
}

}  // namespace

Result<std::unique_ptr<CudaCard>> CudaCard::open(int index, std::optional<std::uint64_t> budget_bytes) {
  if (!budget_bytes) {
    TERRACE_ASSIGN_OR_RETURN(budget_bytes, default_budget(index));
  }
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Card> taken, Card::open(index, *budget_bytes));
  std::unique_ptr<CudaCard> card(new CudaCard(std::move(taken)));
  TERRACE_RETURN_IF_ERROR(card->take_memory());
  return card;
}

CudaCard::CudaCard(std::unique_ptr<Card> card) : card_(std::move(card)) {
  const CardInfo& info = card_->info();
  facts_ = {info.index, info.name, card_->budget_bytes(), info.total_bytes, info.integrated, info.ends_long_kernels};
}

Status CudaCard::take_memory() {
  const std::uint64_t workspace = workspace_of(facts_).card;
  for (int i = 0; i < kCardWorkspaces; ++i) {
    TERRACE_ASSIGN_OR_RETURN(std::byte* const memory, card_->take(workspace, "a workspace"));
    free_workspaces_.push_back(memory);
  }
  const std::uint64_t rest = card_->budget_bytes() - card_->used_bytes();
  TERRACE_ASSIGN_OR_RETURN(std::byte* const slabs, card_->take(rest, "slabs"));
  slab_memory_ = {slabs, rest};
  return {};
}

Result<double> CudaCard::read_rate() const {
  return measure_read_rate(*card_, slab_memory_.first(std::min<std::uint64_t>(slab_memory_.size(), kReadAtOnce)));
}

Status CudaCard::check(const ExpertShape& shape) const {
  TERRACE_ASSIGN_OR_RETURN(const ExpertForm form, form_of(shape));
  TERRACE_RETURN_IF_ERROR(slice_limits(form, workspace_of(facts_), true));
  TERRACE_RETURN_IF_ERROR(check_gemv(shape.gate, form.gate_class, shape.ff, shape.d_model));
  TERRACE_RETURN_IF_ERROR(check_gemv(shape.up, form.up_class, shape.ff, shape.d_model));
  return check_gemv(shape.down, form.down_class, shape.d_model, shape.ff);
}

Status CudaCard::check(const CardProduct& product) const {
  TERRACE_ASSIGN_OR_RETURN(const ProductShape shape, shape_of(product));
  TERRACE_RETURN_IF_ERROR(rows_at_once(std::span(&shape, 1), 1, workspace_of(facts_)));
  return check_gemv(product.type, shape.activation, product.rows, product.cols);
}

// At one row and at many a matrix is computed differently.
Status CudaCard::check_gemv(TensorType type, ActivationClass activation, std::uint32_t rows, std::uint32_t cols) const {
  const GemvCard card{card_->info().multiprocessors, card_->info().shared_bytes_per_block};
  for (const std::uint32_t max_rows : {1u, 8u})
    TERRACE_RETURN_IF_ERROR(plan_gemv({type, activation, 16, rows, cols, 1, max_rows}, card));
  return {};
}

template <class T>
Result<std::unique_ptr<T>> CudaCard::make_in_workspace() {
  std::byte* workspace = nullptr;
  {
    const std::lock_guard lock(mutex_);
    TERRACE_CHECK(!free_workspaces_.empty(), "a card has no workspace left");
    workspace = free_workspaces_.back();
    free_workspaces_.pop_back();
  }
  const auto give_back = [this, workspace] {
    const std::lock_guard lock(mutex_);
    free_workspaces_.push_back(workspace);
  };
  auto made = T::make(*card_, workspace, workspace_of(facts_), give_back);
  if (!made.ok()) give_back();
  return made;
}

Result<std::unique_ptr<CardExecutor>> CudaCard::make_executor() {
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<CardExecutor> executor, make_in_workspace<CudaExecutor>());
  return executor;
}

Result<std::unique_ptr<CardMultiplier>> CudaCard::make_multiplier() {
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<CardMultiplier> multiplier, make_in_workspace<CudaMultiplier>());
  return multiplier;
}

Result<std::unique_ptr<CardWriter>> CudaCard::make_writer() {
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<CardWriter> writer, CudaWriter::make(*card_));
  return writer;
}

Result<std::uint64_t> CudaCard::trunk_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const {
  TERRACE_RETURN_IF_ERROR(check_trunk(card_->info(), model, limits));
  return cuda::trunk_bytes(model, limits);
}

std::uint64_t CudaCard::trunk_pinned_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const {
  return lay_out_pinned(model, limits).bytes();
}

Result<std::unique_ptr<CardTrunk>> CudaCard::make_trunk(CardTrunkModel model, const CardTrunkLimits& limits,
                                                        std::span<std::byte> memory, const LoadProgress& on_progress) {
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<CudaWriter> writer, CudaWriter::make(*card_));
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<CudaTrunk> trunk,
                           CudaTrunk::make(*card_, *writer, std::move(model), limits, memory, on_progress));
  return std::unique_ptr<CardTrunk>(std::move(trunk));
}

Result<std::unique_ptr<ExpertCard>> open_expert_card(std::uint32_t index, std::optional<std::uint64_t> budget_bytes) {
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<CudaCard> card, CudaCard::open(static_cast<int>(index), budget_bytes));
  return std::unique_ptr<ExpertCard>(std::move(card));
}

}  // namespace terrace::kernels::cuda
