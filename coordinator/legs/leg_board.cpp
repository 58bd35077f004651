#include "coordinator/legs/leg_board.h"

#include <algorithm>

namespace terrace::legs {
namespace {

std::size_t index_of(LegCounter counter) {
  const auto all = all_counters();
  return static_cast<std::size_t>(std::find(all.begin(), all.end(), counter) - all.begin());
}

}  // namespace

void BoardChanges::add() {
  {
    const std::lock_guard lock(mutex);
    count.fetch_add(1, std::memory_order_release);
  }
  changed.notify_all();
}

void LegEntry::set_state(LegState state, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (state_.load(std::memory_order_relaxed) == state) return;
    reason_ = reason;
    since_ = std::chrono::steady_clock::now();
    state_.store(state, std::memory_order_release);
  }
  changes_->add();
}

void LegEntry::set_counters(const LegCounters& counters) {
  const auto all = all_counters();
  for (std::size_t i = 0; i < all.size(); ++i) counted_[i].store(counters.*all[i], std::memory_order_relaxed);
}

void LegEntry::add(LegCounter counter, std::uint64_t n) {
  added_[index_of(counter)].fetch_add(n, std::memory_order_relaxed);
}

LegReport LegEntry::report() const {
  LegReport out;
  report(out);
  return out;
}

void LegEntry::report(LegReport& out) const {
  if (out.name != name_) out.name = name_;
  out.kind = kind_;
  out.experts = experts_.load(std::memory_order_relaxed);
  const auto all = all_counters();
  for (std::size_t i = 0; i < all.size(); ++i)
    out.counters.*all[i] = counted_[i].load(std::memory_order_relaxed) + added_[i].load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  out.state = state_.load(std::memory_order_relaxed);
  out.reason = reason_;
  out.since = since_;
}

LegEntry& LegBoard::entry(const std::string& name, LegKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const LegEntry& e) { return e.name_ == name; });
  if (found != entries_.end()) return *found;
  LegEntry& made = entries_.emplace_back();
  made.name_ = name;
  made.kind_ = kind;
  made.changes_ = &changes_;
  made.since_ = std::chrono::steady_clock::now();
  return made;
}

bool LegBoard::wait_for_change(std::uint64_t seen, std::chrono::milliseconds most) {
  std::unique_lock lock(changes_.mutex);
  return changes_.changed.wait_for(lock, most, [&] { return changes() != seen; });
}

LegEntry* LegBoard::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const LegEntry& e) { return e.name_ == name; });
  return found == entries_.end() ? nullptr : &*found;
}

std::vector<LegReport> LegBoard::report() const {
  std::vector<LegReport> out;
  report(out);
  return out;
}

void LegBoard::report(std::vector<LegReport>& out) const {
  const std::lock_guard lock(mutex_);
  out.resize(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].report(out[i]);
}

}  // namespace terrace::legs
