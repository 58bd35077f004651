// Batches that wait for the compute thread: decode before prompt, sessions in turn within each.
//
// With one core, or where Parts::computes_here says so (data_server.h), the I/O thread may claim a small batch and
// compute it itself, while the compute thread has nothing to do and gets nothing: one of the two computes at a time.
//
// Threads  Any. Bounded by the credit of the sessions; nothing is allocated once the most sessions that ever waited
//          at one time were seen.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/wire/messages.h"
#include "tier_node/service/work.h"

namespace terrace::node {

class WorkQueue {
 public:
  // kLater: whoever pushes claims next, or calls wake().
  enum class Wake : std::uint8_t { kNow, kLater };
  void push(Work& work, Wake wake = Wake::kNow);
  // Wakes the compute thread where a batch waits.
  void wake();
  // The next batch, waiting for one; null after stop(). The compute thread's: it has computed the one before.
  Work* pop();
  // A decode batch of at most `max_pairs` for the caller, until unclaim(). Null: the compute thread computes, or the
  // next batch is another.
  Work* claim(std::uint32_t max_pairs);
  void unclaim();
  // The next decode batch if one waits.
  Work* try_pop_decode();
  // Takes out the batch of `peer` with this sequence (0: any, one a call). Null: none waits.
  Work* remove(std::uint64_t peer, std::uint64_t sequence);
  void stop();

 private:
  struct Line {
    std::uint64_t session = 0;
    Work* first = nullptr;
    Work* last = nullptr;
  };
  using Lines = std::vector<Line>;  // the front one is served next; none is empty

  static Work* pop_front(Lines& lines);
  bool any() const { return !lines_[0].empty() || !lines_[1].empty(); }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::array<Lines, 2> lines_;  // by wire::Priority
  bool popped_ = false;         // the compute thread computes
  bool claimed_ = false;        // the caller of claim() computes
  bool stopped_ = false;
};

}  // namespace terrace::node
