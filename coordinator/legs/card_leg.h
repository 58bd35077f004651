// A card of this machine as a leg: the experts it owns lie in its memory, and it computes while the CPU does its part.
//
// submit() hands the batch to the card and returns; one batch may be open (kBusy for a second). A card that failed once
// is lost for good.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/parallel.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/owner_table.h"
#include "kernels/card/expert_card.h"

namespace terrace::legs {

// "card0": the name of the leg of card 0 in tables, plans and JSON.
std::string card_leg_name(int index);
// What a slab takes of a card's memory.
std::uint64_t card_slab_bytes(const kernels::ExpertShape& shape);
// Copies to a card side by side: with so many more would wait for the same link, and each pins memory.
inline constexpr std::size_t kMostCardWriters = 16;
// Pinned host memory while a card is loaded, at the most.
inline constexpr std::uint64_t kCardLoadingBytes = kMostCardWriters * kernels::CardWriter::kPinnedBytes;

enum class SlabPart : std::uint8_t { kGate, kUp, kDown };
// Puts the bytes of a part that begin at its `at`-th into `to`. Any thread.
using SlabPartReader = std::function<Status(std::uint32_t layer, std::uint16_t expert, SlabPart part, std::uint64_t at,
                                            std::span<std::byte> to)>;

class CardLeg final : public Leg {
 public:
  // What else the card does.
  enum class Place : std::uint8_t {
    kWithTrunk,  // a trunk there may compute the leg's pairs itself: slabs_on_card()
    kApart,      // nothing: the leg is asked for its pairs as any other
  };
  // Owns the experts that `owners` gives to `leg`; they fit into `memory`, a part of the card's slab memory, together,
  // and the card can compute their shapes (ExpertCard::check()). kernels: one per layer; shift: SHIFT of the model.
  // `card` outlives the leg.
  static Result<std::unique_ptr<CardLeg>> make(kernels::ExpertCard& card, std::span<std::byte> memory,
                                               const OwnerTable& owners, std::size_t leg,
                                               const std::vector<kernels::ExpertKernels>& kernels, int shift,
                                               Place place = Place::kWithTrunk);

  // Copies the slabs to the card, as many pieces of them at once as there are workers, kMostCardWriters at the most:
  // reads of the file overlap with each other and with the copies. on_progress is called by any of them, one call at a
  // time. An error ends it: pieces that others have begun are the last ones read. Before the first batch. A card that
  // is apart computes some pairs of each shape then.
  Status load(const SlabPartReader& read, Parallel& parallel,
              FunctionRef<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> on_progress);

  const std::string& name() const override { return name_; }
  LegKind kind() const override { return LegKind::kCard; }
  LegState state() const override { return lost_ ? LegState::kLost : LegState::kOk; }
  std::uint64_t experts() const override { return experts_; }
  Result<Ticket> submit(const LegBatch& batch) override;
  Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override;
  LegCounters counters() const override { return counters_; }
  std::span<const kernels::SlabView> slabs_on_card() const override {
    if (place_ == Place::kApart) return {};
    return slabs_;
  }
  void count_on_card(const LegCounters& counted) override { counters_ += counted; }

 private:
  // Where a part of a slab lies in `memory_`, and whose it is.
  struct PlacedPart {
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
    std::uint32_t layer = 0;
    std::uint16_t expert = 0;
    SlabPart part = SlabPart::kGate;
  };
  CardLeg(kernels::ExpertCard& card, const OwnerTable& owners, std::size_t leg,
          const std::vector<kernels::ExpertKernels>& kernels, int shift, Place place);
  void place_slabs(std::span<std::byte> memory, const OwnerTable& owners, std::size_t leg);
  std::byte* place(std::uint64_t at, std::uint64_t bytes, std::uint32_t layer, std::uint16_t expert, SlabPart part);
  // One for each worker that has something to copy.
  Result<std::vector<std::unique_ptr<kernels::CardWriter>>> make_writers(const Parallel& parallel);
  Status fill(std::uint64_t at, std::span<std::byte> piece, const SlabPartReader& read) const;
  Status compute_each_shape();
  Status compute_zeros(std::uint32_t layer, const kernels::SlabView& slab, std::uint16_t n_rows);
  Error lost(const Error& why);

  kernels::ExpertCard& card_;
  const std::string name_;
  const std::uint32_t n_experts_;
  const std::uint64_t experts_;
  const int shift_;
  const Place place_;
  std::vector<kernels::ExpertShape> shapes_;  // [n_layers]
  struct RowClasses {
    ActivationClass gate, up;
  };
  std::vector<RowClasses> classes_;       // [n_layers]
  std::span<std::byte> memory_;           // on the card, that slabs take
  std::vector<PlacedPart> parts_;         // in the order of their places
  std::uint64_t weight_bytes_ = 0;        // of those
  std::vector<kernels::SlabView> slabs_;  // [n_layers, n_experts] on the card; null parts where another leg owns
  std::unique_ptr<kernels::CardExecutor> executor_;
  Ticket open_ = 0;  // 0: none
  Ticket next_ticket_ = 1;
  bool lost_ = false;
  std::vector<std::uint8_t> row_seen_;  // scratch of submit()
  LegCounters counters_;
};

}  // namespace terrace::legs
