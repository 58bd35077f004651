// What is known of every leg, by its name: what /health, /slots, metrics, `status` and `generate --json` tell, and what
// a supervisor looks at. A node that comes back is the same entry again; its counters go on.
//
// Threads  Any. Counters are plain atomic stores: a step locks nothing for them and allocates nothing. States and
//          reasons are behind an entry's lock; they change when something went wrong.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/legs/leg.h"

namespace terrace::legs {

// A leg as the board has it: plain values, copied out.
struct LegReport {
  std::string name;
  LegKind kind = LegKind::kHost;
  LegState state = LegState::kOk;
  std::string reason;                             // of suspect, lost and wrong; else empty
  std::chrono::steady_clock::time_point since{};  // of the state
  std::uint64_t experts = 0;                      // slabs it owns now
  LegCounters counters;                           // of all its sessions
};

// How often any state of a board has changed, and who waits for it.
struct BoardChanges {
  std::atomic<std::uint64_t> count = 0;
  std::mutex mutex;  // held while it rises, so that no waiter sleeps through it
  std::condition_variable changed;

  void add();
};

class LegEntry {
 public:
  const std::string& name() const { return name_; }
  LegKind kind() const { return kind_; }
  LegState state() const { return state_.load(std::memory_order_acquire); }
  // Where the state is another one, `since` is now. The reason of a state that stays is kept: the first tells most.
  void set_state(LegState state, const std::string& reason);
  void set_experts(std::uint64_t experts) { experts_.store(experts, std::memory_order_relaxed); }
  // The whole of what steps have counted so far. The step's thread alone.
  void set_counters(const LegCounters& counters);
  // Beside those, for what other threads count (losses, rejoins, audited pairs).
  void add(LegCounter counter, std::uint64_t n);
  LegReport report() const;
  // The same into memory that is kept: nothing is allocated where `out` has been this entry's before and the reason is
  // no longer one.
  void report(LegReport& out) const;

 private:
  friend class LegBoard;
  std::string name_;
  LegKind kind_ = LegKind::kHost;
  BoardChanges* changes_ = nullptr;  // the board's
  std::atomic<LegState> state_ = LegState::kOk;
  std::atomic<std::uint64_t> experts_ = 0;
  std::array<std::atomic<std::uint64_t>, kLegCounters> counted_{};
  std::array<std::atomic<std::uint64_t>, kLegCounters> added_{};

  mutable std::mutex mutex_;  // guards the two below
  std::string reason_;
  std::chrono::steady_clock::time_point since_{};
};

class LegBoard {
 public:
  LegBoard() = default;
  LegBoard(const LegBoard&) = delete;
  LegBoard& operator=(const LegBoard&) = delete;

  // The entry of this name, made where there is none. Entries stay, in the order in which they were made.
  LegEntry& entry(const std::string& name, LegKind kind);
  // Null: no leg has this name.
  LegEntry* find(const std::string& name);

  std::vector<LegReport> report() const;
  // Into memory that is kept.
  void report(std::vector<LegReport>& out) const;
  // Rises with every change of a state, and with wake(): what a supervisor compares before it looks closer.
  std::uint64_t changes() const { return changes_.count.load(std::memory_order_acquire); }
  // Returns once changes() is another than `seen`, at the latest after `most`; whether it is.
  bool wait_for_change(std::uint64_t seen, std::chrono::milliseconds most);
  // Ends such waits.
  void wake() { changes_.add(); }

 private:
  mutable std::mutex mutex_;
  std::deque<LegEntry> entries_;  // grows at its end: entries stay where they are
  BoardChanges changes_;
};

}  // namespace terrace::legs
