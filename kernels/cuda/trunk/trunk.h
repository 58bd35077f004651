// CardTrunk over the kernels of kernels/cuda: one stream, one region of card memory, pinned memory for what goes in and
// comes back.
//
// Steps of few rows, those of decoding, are graphs: what a step launches depends on its sizes alone, everything else
// lies in the region. A size is captured when it comes up first and is one launch from then on: a whole step where the
// experts lie on this card, else a layer's part before its experts.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/function_ref.h"
#include "kernels/card/card_trunk.h"
#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/expert_gemv/expert_gemv.h"
#include "kernels/cuda/kv/kv.h"
#include "kernels/cuda/trunk/plan.h"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {

// Whether this card's kernels compute such a trunk. kUnsupported: names what they do not.
Status check_trunk(const CardInfo& card, const CardTrunkModel& model, const CardTrunkLimits& limits);

class CudaTrunk final : public CardTrunk {
 public:
  // `memory`: trunk_bytes() of card memory, 256-byte aligned; the weights are copied there. `card` outlives the trunk.
  static Result<std::unique_ptr<CudaTrunk>> make(const Card& card, CardWriter& writer, CardTrunkModel model,
                                                 const CardTrunkLimits& limits, std::span<std::byte> memory);
  ~CudaTrunk() override;

  CardStepInput begin(const CardStepSize& size) override;
  Result<CardStepResult> run(std::span<const SlabView> slabs) override;
  Result<CardRoutedRows> attention(std::uint32_t layer, bool add_sums) override;
  std::span<std::int64_t> sums() override;
  Result<const float*> add_and_read(std::uint32_t layer) override;
  Result<CardStepResult> head(bool add_sums) override;
  Status copy_block(std::uint32_t to, std::uint32_t from) override;

 private:
  // What is added to the residual before a norm.
  enum class Pending : std::uint8_t { kNothing, kAttention, kExperts, kSums };
  // What a captured part depends on besides the sizes.
  enum class Part : std::uint8_t { kWhole, kAttention, kHead };
  struct Replay {
    std::array<std::uint32_t, 7> key;
    Graph graph;
  };
  struct Pinned {
    PinnedBuffer in, back, sums;
  };
  CudaTrunk(Stream stream, Pinned pinned, CardTrunkModel model, const CardTrunkLimits& limits,
            std::span<std::byte> memory);
  Status upload(CardWriter& writer);

  // trunk.cpp: what a step is
  bool is_replayed() const;
  Status replay_or_queue(Part part, std::uint32_t layer, bool add_sums, FunctionRef<Status()> queue);
  Status queue_input();
  Status queue_whole();
  Status queue_attention(std::uint32_t layer, Pending pending);
  Status queue_head(Pending pending);
  Status queue_logits(std::uint32_t first, std::uint32_t n);
  Status queue_failures();
  Status queue_sums();
  Result<CardStepResult> finish();
  Status finish_many_logits();
  void collect_failures();

  // layers.cpp: what a layer is
  Status norm(std::uint32_t layer, Pending pending, CardFailure what);
  Status project(std::uint32_t layer);
  Status attend(std::uint32_t layer);
  Status norm_and_choose(std::uint32_t layer, bool with_pairs);
  ResidualArgs norm_args(std::uint32_t layer, Pending pending, CardFailure what) const;
  ChooseArgs choice_args(std::uint32_t layer, bool with_pairs) const;
  Status experts(std::uint32_t layer);
  struct Rows {
    const std::byte* at;
    std::uint32_t stride;
  };
  Rows rows_of_h(TensorType type) const;
  // y = matrix x, of one product of rows: all but where the weights are and how many rows.
  static GemvArgs product_of(const HostMatrix& matrix, const Rows& x, float* y);
  Status multiply(const HostMatrix& matrix, std::uint64_t weights, const Rows& x, std::uint32_t n_rows, float* y) const;
  std::uint32_t code(std::uint32_t layer, CardFailure what) const;

  template <class T>
  T* weight(std::uint64_t offset) const {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  template <class T>
  T* step(std::uint64_t offset) const {
    return reinterpret_cast<T*>(memory_.data() + cache_.end + offset);
  }
  // Where what lies at or behind `weights` of a step comes back to.
  std::byte* back(std::uint64_t offset) const { return pinned_.back.data() + (offset - at_.weights); }
  KvCache cache_of(std::uint32_t layer) const;

  Stream stream_;
  Pinned pinned_;
  const CardTrunkModel model_;
  const CardTrunkLimits limits_;
  const std::span<std::byte> memory_;
  const TrunkWeights weights_;
  const TrunkCache cache_;
  // In pinned memory: choices and failures, then rows, then logits.
  std::uint64_t back_rows_ = 0, back_logits_ = 0;
  std::array<bool, kActivationClasses> wants_{};  // classes in which some matrix wants h

  CardStepSize size_;
  StepLayout at_;
  std::vector<Replay> replays_;
  const SlabView* slabs_ = nullptr;       // those that lie in `weights_.slabs`
  std::vector<CardRowFailure> failures_;  // of the last step
  std::vector<float> many_logits_;        // where they are more than pinned memory holds
};

}  // namespace terrace::kernels::cuda
