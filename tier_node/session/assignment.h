// A share on its way to become an epoch: which of its slabs are still missing, and how far they are.
//
// Threads  The loader's thread fills it from the file, and says which slabs are wanted; those are filled by the
//          receiver's threads, each by one of them. wait() belongs to the call that asked for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/arena/slab_store.h"
#include "common/base/result.h"
#include "common/manifest/slab.h"
#include "tier_node/session/epoch.h"

namespace terrace::node {

struct AssignProgress {
  bool ready = false;
  std::optional<Error> failed;
  std::vector<ShareItem> wanted;  // from the coordinator, each told once
  std::uint64_t slabs_total = 0;
  std::uint64_t slabs_ready = 0;
  std::uint64_t bytes_ready = 0;  // of file_bytes()
};

class Assignment {
 public:
  // One slab of the share. Where `ready` is null the slab is missing.
  struct Slot {
    ShareItem item;
    bool given = false;    // was ready from the start: nobody fills it
    bool on_card = false;  // where it is to lie
    arena::SlabRef ready;  // of whoever fills it, until the assignment is complete
    // From here on only the thread that fills it: the loader's, and from `wanted` on one of the receiver's.
    std::shared_ptr<arena::HeldSlab> filling;
    std::optional<manifest::SlabHasher> hasher;
    std::uint64_t received = 0;        // bytes that came over the weights lane, in order
    std::atomic<bool> wanted = false;  // the coordinator was asked for it
  };

  // items rise. ready[i] is items[i]'s slab or null.
  Assignment(std::uint64_t epoch, bool new_slabs, const std::vector<ShareItem>& items,
             std::vector<arena::SlabRef> ready);

  std::uint64_t epoch() const { return epoch_; }
  bool brings_new_slabs() const { return new_slabs_; }
  // True to whoever filled the last slab, at least; what the others wrote is then there to be read.
  bool complete() const { return n_ready_.load(std::memory_order_acquire) == slots_.size(); }
  std::vector<Slot>& slots() { return slots_; }
  // Null: not of this share.
  Slot* find(const ShareItem& item);

  // The loader's thread.
  void want(Slot& slot);
  void want_missing();  // all at once, so that the first answer lists them together
  // The thread that filled it.
  void slab_ready(Slot& slot, arena::SlabRef slab);
  // Any thread: the coordinator was asked for slabs, and not all are there.
  bool wants_slabs() const;
  // Ends the wait. Without an error: the epoch is live.
  void finish(std::optional<Error> failed);

  // Waits until there is something new to tell, at most `timeout`, and tells all of it.
  AssignProgress wait(std::chrono::milliseconds timeout);
  // Ready, failed or given up.
  bool finished() const;

 private:
  const std::uint64_t epoch_;
  const bool new_slabs_;
  std::vector<Slot> slots_;  // rising by item
  std::atomic<std::size_t> n_ready_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  AssignProgress progress_;  // `wanted`: not told yet
  bool finished_ = false;
};
using AssignmentRef = std::shared_ptr<Assignment>;

}  // namespace terrace::node
