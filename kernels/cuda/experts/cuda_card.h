// ExpertCard over kernels/cuda/device.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"

namespace terrace::kernels::cuda {

class CudaCard final : public ExpertCard {
 public:
  static Result<std::unique_ptr<CudaCard>> open(int index, std::optional<std::uint64_t> budget_bytes);

  const CardFacts& facts() const override { return facts_; }
  std::span<std::byte> slab_memory() const override { return slab_memory_; }
  Result<double> read_rate() const override;
  Status check(const ExpertShape& shape) const override;
  Status check(const CardProduct& product) const override;
  Result<std::unique_ptr<CardExecutor>> make_executor() override;
  Result<std::unique_ptr<CardMultiplier>> make_multiplier() override;
  Result<std::unique_ptr<CardWriter>> make_writer() override;
  Result<std::uint64_t> trunk_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const override;
  std::uint64_t trunk_pinned_bytes(const CardTrunkModel& model, const CardTrunkLimits& limits) const override;
  Result<std::unique_ptr<CardTrunk>> make_trunk(CardTrunkModel model, const CardTrunkLimits& limits,
                                                std::span<std::byte> memory, const LoadProgress& on_progress) override;

 private:
  explicit CudaCard(std::unique_ptr<Card> card);
  Status take_memory();
  Status check_gemv(TensorType type, ActivationClass activation, std::uint32_t rows, std::uint32_t cols) const;
  // An Executor or a Multiplier in a workspace of its own.
  template <class T>
  Result<std::unique_ptr<T>> make_in_workspace();

  std::unique_ptr<Card> card_;
  CardFacts facts_;
  std::span<std::byte> slab_memory_;
  std::mutex mutex_;
  std::vector<std::byte*> free_workspaces_;  // guarded by mutex_
};

}  // namespace terrace::kernels::cuda
