#include "tier_node/session/assignment.h"

#include <algorithm>
#include <utility>

namespace terrace::node {

Assignment::Assignment(std::uint64_t epoch, bool new_slabs, const std::vector<ShareItem>& items,
                       std::vector<arena::SlabRef> ready)
    : epoch_(epoch), new_slabs_(new_slabs), slots_(items.size()) {
  progress_.slabs_total = items.size();
  for (std::size_t i = 0; i < items.size(); ++i) {
    slots_[i].item = items[i];
    slots_[i].given = ready[i] != nullptr;
    if (slots_[i].given) slab_ready(slots_[i], std::move(ready[i]));
  }
}

Assignment::Slot* Assignment::find(const ShareItem& item) {
  const auto slot = std::lower_bound(slots_.begin(), slots_.end(), item,
                                     [](const Slot& candidate, const ShareItem& key) { return candidate.item < key; });
  return slot != slots_.end() && slot->item == item ? &*slot : nullptr;
}

void Assignment::want(Slot& slot) {
  slot.received = 0;
  slot.wanted.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  progress_.wanted.push_back(slot.item);
  changed_.notify_all();
}

void Assignment::want_missing() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.given) continue;
    slot.wanted.store(true, std::memory_order_release);
    progress_.wanted.push_back(slot.item);
  }
  changed_.notify_all();
}

void Assignment::slab_ready(Slot& slot, arena::SlabRef slab) {
  slot.filling.reset();
  slot.hasher.reset();
  slot.wanted.store(false, std::memory_order_relaxed);
  slot.ready = std::move(slab);
  const std::lock_guard lock(mutex_);
  progress_.slabs_ready += 1;
  progress_.bytes_ready += slot.ready->sizes().file_bytes();
  // Last: whoever sees it complete may take all of them away.
  n_ready_.fetch_add(1, std::memory_order_acq_rel);
}

void Assignment::finish(std::optional<Error> failed) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  progress_.ready = !failed.has_value();
  progress_.failed = std::move(failed);
  changed_.notify_all();
}

AssignProgress Assignment::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return finished_ || !progress_.wanted.empty(); });
  AssignProgress told = progress_;
  progress_.wanted.clear();
  return told;
}

bool Assignment::wants_slabs() const {
  return !complete() && std::ranges::any_of(slots_, [](const Slot& slot) { return slot.wanted.load(); });
}

bool Assignment::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

}  // namespace terrace::node
