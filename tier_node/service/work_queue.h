// Batches that wait for the compute thread: decode before prompt, sessions in turn within each.
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
  void push(Work& work);
  // The next batch, waiting for one; null after stop().
  Work* pop();
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

  std::mutex mutex_;
  std::condition_variable filled_;
  std::array<Lines, 2> lines_;  // by wire::Priority
  bool stopped_ = false;
};

}  // namespace terrace::node
