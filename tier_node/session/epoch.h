// One epoch's share of a session: which experts this node computes, and where their bytes lie. Immutable; keeps its
// slabs alive, so whoever holds an EpochRef may compute with it, forgotten or not.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/arena/slab_store.h"
#include "kernels/executor/executor.h"

namespace terrace::node {

// One expert of a share.
struct ShareItem {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  auto operator<=>(const ShareItem&) const = default;
};

class Epoch {
 public:
  // slabs[i] is items[i]'s. new_slabs: of them, those that no live epoch held before.
  Epoch(std::uint64_t number, std::uint32_t n_layers, std::uint32_t n_experts, const std::vector<ShareItem>& items,
        std::vector<arena::SlabRef> slabs, bool new_slabs);

  std::uint64_t number() const { return number_; }
  std::uint64_t n_slabs() const { return slabs_.size(); }
  bool brought_new_slabs() const { return new_slabs_; }

  // Ids within the model's. Null parts: not in this share.
  const kernels::SlabView& slab(std::uint32_t layer, std::uint32_t expert) const {
    return table_[static_cast<std::size_t>(layer) * n_experts_ + expert];
  }
  bool holds(std::uint32_t layer, std::uint32_t expert) const { return slab(layer, expert).gate != nullptr; }

 private:
  const std::uint64_t number_;
  const std::uint32_t n_experts_;
  const bool new_slabs_;
  std::vector<kernels::SlabView> table_;  // [n_layers, n_experts]
  std::vector<arena::SlabRef> slabs_;
};
using EpochRef = std::shared_ptr<const Epoch>;

// The live epochs of a session (docs/architecture.md). One thread at a time: the session's lock.
class EpochBook {
 public:
  // At most so many live epochs may each have brought slabs.
  static constexpr std::size_t kMaxWithNewSlabs = 2;

  // kStaleEpoch: unknown or forgotten; the text names it and those held.
  Result<EpochRef> find(std::uint64_t number) const;
  // kInvalidArgument: not above every epoch that was ever announced. kBusy: it brings slabs and two that did live.
  // Announcing a number uses it up.
  Status announce(std::uint64_t number, bool new_slabs);
  // The announced epoch is ready.
  void add(EpochRef epoch);
  // kStaleEpoch: not live.
  Status forget(std::uint64_t number);
  // Leaves no epoch live here; `other`, destroyed outside the lock, lets their slabs go.
  void move_live_to(EpochBook& other) { other.live_ = std::exchange(live_, {}); }

  // The live epoch of the highest number; null when none is live.
  EpochRef newest() const;

 private:
  std::string held() const;  // "holds 41, 42", "holds none"

  std::vector<EpochRef> live_;  // rising
  std::uint64_t announced_ = 0;
};

}  // namespace terrace::node
