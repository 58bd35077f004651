// CardTrunk over the kernels of kernels/cuda: one stream, one region of card memory, pinned memory for what goes in and
// comes back.
//
// Steps of few rows, those of decoding, are graphs: what a step launches depends on its sizes alone, everything else
// lies in the region. A size is captured when it comes up first and is one launch from then on: a whole step, with or
// without other legs' sums, or a layer's part before its experts. Steps of more rows are queued layer by layer, each of
// their parts with a stream that takes rows and choices to the host: nothing here waits for the card but head() and
// traces. Between the layers of a step with other legs the card and a host thread wait for each other's flags in pinned
// memory (trunk_ops.h): no launch, no call of the driver.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
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
#include "kernels/cuda/trunk/replays.h"
#include "kernels/cuda/trunk_ops/trunk_ops.h"

namespace terrace::kernels::cuda {

// Whether this card's kernels compute such a trunk. kUnsupported: names what they do not.
Status check_trunk(const CardInfo& card, const CardTrunkModel& model, const CardTrunkLimits& limits);

class CudaTrunk final : public CardTrunk {
 public:
  // `memory`: trunk_bytes() of card memory, 256-byte aligned; the weights are copied there. `card` outlives the trunk.
  static Result<std::unique_ptr<CudaTrunk>> make(const Card& card, CardWriter& writer, CardTrunkModel model,
                                                 const CardTrunkLimits& limits, std::span<std::byte> memory,
                                                 const LoadProgress& on_progress);
  ~CudaTrunk() override;

  Result<CardStepResult> run(std::span<const SlabView> slabs) override;
  bool starts(const CardStepSize& size) const override;
  Status start(std::span<const SlabView> slabs) override;
  Result<CardRoutedRows> routed(std::uint32_t layer, GiveWay give_way) override;
  void give_sums(std::uint32_t layer) override;
  Result<CardStepResult> finish() override;
  void give_up() override;
  CardStepInput begin_part(const CardStepSize& size, std::uint32_t part) override;
  Status queue_layer(std::uint32_t part, std::uint32_t layer, std::span<const SlabView> slabs) override;
  Result<std::optional<CardRoutedRows>> poll_routed(std::uint32_t part) override;
  Result<CardRoutedRows> wait_routed(std::uint32_t part) override;
  std::span<std::int64_t> sums_of(std::uint32_t part) override;
  Result<const float*> add_and_read(std::uint32_t layer) override;
  Result<CardStepResult> head(std::uint32_t part) override;
  Status copy_block(std::uint32_t to, std::uint32_t from) override;

 private:
  // What is added to the residual before a norm.
  enum class Pending : std::uint8_t {
    kNothing,
    kAttention,
    kExperts,
    kSums,            // that were copied to the card
    kSumsAndExperts,  // and this card's experts
    kLegs,            // sums of other legs, when their flag is up
    kLegsAndExperts   // and this card's experts
  };
  // What is captured of a step, besides the sizes.
  enum class Piece : std::uint8_t { kWhole, kBesideLegs, kAttention, kAttentionAndPairs, kHead };
  struct Pinned {
    PinnedBuffer in, back, sums, flags;
  };
  struct Events {
    Event begin, end;  // around a whole step
  };
  // What takes a layer's rows and choices of one part to the host, while the card goes on with its own experts.
  struct ToHost {
    Stream stream;
    Event made;    // recorded on the trunk's stream: they are there
    Event copied;  // on this one
  };
  // A part of a step from its begin to its head().
  struct StepPart {
    CardStepSize size;
    StepLayout at;
    std::uint64_t in_at = 0, back_at = 0;  // in pinned memory
    std::uint32_t first_row = 0;           // of the step
    std::uint32_t layer = 0;               // that was queued last
    Pending pending = Pending::kNothing;   // when the next one is
  };
  CudaTrunk(Stream stream, Events events, std::vector<ToHost> to_host, Pinned pinned, CardTrunkModel model,
            const CardTrunkLimits& limits, std::span<std::byte> memory);
  Status upload(CardWriter& writer, const LoadProgress& on_progress);

  // trunk.cpp: what a step is
  static bool is_replayed(const CardStepSize& size);
  Status place(std::span<const SlabView> slabs);
  void use(std::uint32_t part);
  Status replay_or_queue(Piece piece, std::uint32_t layer, Pending pending, FunctionRef<Status()> queue);
  Status queue_input();
  Status queue_whole();
  Status queue_beside_legs(bool has_experts);
  Status queue_hand_over(std::uint32_t layer);
  Status queue_attention(std::uint32_t layer, Pending pending);
  Status queue_head(Pending pending);
  Status queue_logits(std::uint32_t first, std::uint32_t n);
  Status queue_failures();
  Status queue_sums();
  Status queue_to_routed(std::uint32_t layer, bool has_experts);
  Status queue_to_host(const ToHost& to, std::uint32_t layer);
  Status finish_many_logits();
  void collect_failures();
  void collect_largest();

  // layers.cpp: what a layer is
  Status norm(std::uint32_t layer, Pending pending, CardFailure what);
  Status project(std::uint32_t layer);
  HeadsArgs heads_args(std::uint32_t layer) const;
  AttentionArgs attention_args(const HeadsArgs& heads) const;
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
  std::uint64_t ids_at(std::uint32_t layer) const {
    return at_.ids + std::uint64_t{layer} * size_.n_rows * model_.top_k * sizeof(std::uint16_t);
  }
  CardRoutedRows routed_rows(std::uint32_t layer) const;
  // A layer's two flags, each on a cache line of its own.
  enum class Flag : std::uint8_t { kRows, kSums };
  std::uint32_t* flag(std::uint32_t layer, Flag which) const;
  void raise(std::uint32_t layer);
  // Where what lies at or behind `weights` of the part comes back to.
  std::byte* back(std::uint64_t offset) const { return pinned_.back.data() + now_->back_at + (offset - at_.weights); }
  std::byte* host_rows() const {
    return pinned_.back.data() + pinned_at_.back_rows + std::size_t{now_->first_row} * model_.d_model * sizeof(float);
  }
  std::byte* host_sums() const {
    return pinned_.sums.data() + std::size_t{now_->first_row} * model_.d_model * sizeof(std::int64_t);
  }
  KvCache cache_of(std::uint32_t layer) const;

  Stream stream_;
  const Events events_;
  const std::vector<ToHost> to_host_;  // [max_parts]
  const Event* copied_ = nullptr;      // the rows that were made last: others may be made in their place
  Pinned pinned_;
  const CardTrunkModel model_;
  const CardTrunkLimits limits_;
  const std::span<std::byte> memory_;
  const TrunkWeights weights_;
  const TrunkCache cache_;
  const TrunkPinned pinned_at_;
  const StepRoom room_;
  std::array<bool, kActivationClasses> wants_{};  // classes in which some matrix wants h

  std::vector<StepPart> parts_;  // [max_parts]
  StepPart* now_ = nullptr;      // the one at hand; its size and places are the two below
  CardStepSize size_;
  StepLayout at_;
  // Each takes card memory beside the budget. So many hold the sizes that streams which decode come in, and a piece of
  // each layer and the head in four sizes, however deep the model: what the step at hand runs is never the oldest.
  Replays<Graph> replays_{std::max<std::size_t>(256, 4 * (model_.layers.size() + 1))};
  const SlabView* slabs_ = nullptr;  // those that lie in `weights_.slabs`
  std::uint32_t started_steps_ = 0;  // the number of the last one: what its flags hold
  bool is_started_ = false;
  std::vector<CardRowFailure> failures_;  // of the last step
  std::vector<std::int32_t> largest_;     // the same
  std::vector<float> many_logits_;        // where they are more than pinned memory holds
};

}  // namespace terrace::kernels::cuda
