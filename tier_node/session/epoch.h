// One epoch's share of a session: which experts this node computes, and where their bytes lie. Immutable; keeps its
// slabs alive, so whoever holds an EpochRef may compute with it, forgotten or not.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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
  // items rise; slabs[i] is items[i]'s. new_slabs: of them, those that no live epoch held before.
  Epoch(std::uint64_t number, std::vector<ShareItem> items, std::vector<arena::SlabRef> slabs, bool new_slabs);

  std::uint64_t number() const { return number_; }
  std::uint64_t n_slabs() const { return slabs_.size(); }
  bool brought_new_slabs() const { return new_slabs_; }

  // Null parts: not in this share.
  kernels::SlabView slab(std::uint32_t layer, std::uint32_t expert) const;
  // Whether the slab lies on the card: its parts are the card's addresses. The share has it.
  bool on_card(std::uint32_t layer, std::uint32_t expert) const;
  bool holds(std::uint32_t layer, std::uint32_t expert) const { return slab(layer, expert).gate != nullptr; }

 private:
  const arena::HeldSlab* find(std::uint32_t layer, std::uint32_t expert) const;

  const std::uint64_t number_;
  const bool new_slabs_;
  const std::vector<ShareItem> items_;  // rising: an epoch takes as much memory as its share has experts
  const std::vector<arena::SlabRef> slabs_;
};
using EpochRef = std::shared_ptr<const Epoch>;

// The live epochs of a session (docs/architecture.md).
//
// Threads  One at a time: the session's lock. find_live() alone is for any thread, without it: a batch waits for nobody
//          who has that lock, such as threads behind all others in the system's order (common/threads/background.h).
class EpochBook {
 public:
  // At most so many live epochs may each have brought slabs.
  static constexpr std::size_t kMaxWithNewSlabs = 2;
  // Far more than a coordinator has batches in: it forgets an epoch with the last reply of its last batch.
  static constexpr std::size_t kMaxLive = 64;
  // Bytes that an expert of a live epoch costs beside its slab: item, reference, HeldSlab and their control blocks.
  static constexpr std::uint64_t kBytesAnItem = 192;

  // max_items: of all live epochs together.
  explicit EpochBook(std::uint64_t max_items) : max_items_(max_items) {}

  // Null: not live. Any thread.
  EpochRef find_live(std::uint64_t number) const;
  // kStaleEpoch: unknown or forgotten; the text names it and those held.
  Result<EpochRef> find(std::uint64_t number) const;
  // An epoch of n_items experts is on its way. kInvalidArgument: not above every epoch that was ever announced. kBusy:
  // it brings slabs and two that did live; kMaxLive live; more items than max_items in all. Announcing a number uses
  // it up.
  Status announce(std::uint64_t number, std::size_t n_items, bool new_slabs);
  // The announced epoch is ready.
  void add(EpochRef epoch);
  // The epoch, live no more, to be destroyed outside the lock. kStaleEpoch: not live.
  Result<EpochRef> forget(std::uint64_t number);
  // Leaves no epoch live; `other`, destroyed outside the lock, lets their slabs go.
  void move_live_to(std::vector<EpochRef>& other) {
    other.clear();
    swap_live(other);
  }

  // The live epoch of the highest number; null when none is live.
  EpochRef newest() const;

 private:
  std::string held() const;  // "holds 41, 42", "holds none"; of many the first, and how many more
  Status check_room(std::uint64_t number, std::size_t n_items) const;
  void swap_live(std::vector<EpochRef>& next);

  std::uint64_t max_items_;
  mutable std::mutex live_mutex_;  // held while a pointer is copied, or three are swapped, and never longer
  std::vector<EpochRef> live_;     // rising; whoever has the session's lock reads it without the other
  std::uint64_t announced_ = 0;
};

}  // namespace terrace::node
