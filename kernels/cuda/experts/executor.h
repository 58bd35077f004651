// CardExecutor over the kernels of kernels/cuda: one stream, one workspace, one pinned buffer for each direction.
//
// A slice is one copy to the card, a dozen launches and one copy back; while the card computes it, the calling thread
// is free. Sums of a slice start from zero on the card and are added on the host, so slices know nothing of each other.
//
// Slices of few pairs, those of decoding, are graphs: what they launch depends on their size alone, everything else
// lies in the workspace. A size is captured when it comes up first and is one launch from then on.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/card/expert_card.h"
#include "kernels/card/slices.h"
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/experts/plan.h"

namespace terrace::kernels::cuda {

struct GemvArgs;

// The form of a shape: the classes in which its types meet rows. kUnsupported: a type without a kernel.
Result<ExpertForm> form_of(const ExpertShape& shape);

class CudaExecutor final : public CardExecutor {
 public:
  // `workspace` is card memory of `bytes.card`, 256-byte aligned; give_back is called when it is not used any more.
  // `card` outlives the executor.
  static Result<std::unique_ptr<CudaExecutor>> make(const Card& card, std::byte* workspace, const WorkspaceBytes& bytes,
                                                    std::function<void()> give_back);
  ~CudaExecutor() override;

  Status submit(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch, int shift) override;
  Result<ExecStats> collect(SumsView sums, std::span<std::uint8_t> failed,
                            Executor::BetweenSlices between_slices) override;
  Result<ExecStats> run_slots(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch,
                              std::span<float> out, std::span<std::uint8_t> failed,
                              Executor::BetweenSlices between_slices) override;

 private:
  struct ExpertSlab {
    std::uint16_t expert = 0;
    SlabView slab;
  };
  // What a captured slice depends on.
  struct Replayed {
    ExpertForm form;
    SliceSize size;
    int shift = 24;
    bool operator==(const Replayed&) const = default;
  };
  struct Replay {
    Replayed what;
    Graph graph;
  };
  CudaExecutor(Stream stream, Event begin, Event end, PinnedBuffer in, PinnedBuffer back, std::byte* workspace,
               const WorkspaceBytes& bytes, std::function<void()> give_back);

  Status begin(const ExpertShape& shape, Executor::SlabOf slab_of, const BatchView& batch, int shift, bool to_slots);
  Result<ExecStats> finish(Executor::BetweenSlices between_slices, FunctionRef<void(const CardSlice& slice)> take);
  Status queue(const CardSlice& slice);
  bool is_replayed(const CardSlice& slice) const;
  Status replay(const CardSlice& slice);
  Status launch_all(const CardSlice& slice);
  void fill_rows(const CardSlice& slice);
  void fill_pairs(const CardSlice& slice);
  const SlabView& slab_of_expert(std::uint16_t expert) const;
  Status launch_rows(const CardSlice& slice);
  Status launch_gate_and_up(const CardSlice& slice);
  Status launch_down(const CardSlice& slice);
  Status launch_back(const CardSlice& slice);
  GemvArgs product(TensorType type, std::uint64_t groups, std::uint32_t weight_rows, std::uint32_t cols,
                   std::uint64_t x, std::uint64_t y) const;
  template <class T>
  T* in(std::uint64_t offset) const {
    return reinterpret_cast<T*>(in_.data() + offset);
  }
  template <class T>
  T* on_card(std::uint64_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }

  Stream stream_;
  Event begin_, end_;
  PinnedBuffer in_, back_;
  std::byte* const workspace_;
  const WorkspaceBytes bytes_;
  const std::function<void()> give_back_;

  // Of the batch in hand.
  ExpertForm form_;
  BatchView batch_;
  int shift_ = 24;
  bool to_slots_ = false;
  std::vector<ExpertSlab> slabs_;  // of its experts, rising
  Slicer slicer_;
  // Of the slice on the card.
  const CardSlice* slice_ = nullptr;
  SliceLayout at_;
  std::uint32_t n_groups_ = 0;
  std::uint32_t largest_group_ = 0;  // pairs
  bool open_ = false;                // between submit() and collect()
  std::vector<Replay> replays_;
};

}  // namespace terrace::kernels::cuda
