// When which lost node is tried again: each failure doubles its pause, and of several that are due the one that failed
// last is tried last.
//
// Threads  One at a time. Time is what callers give.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace terrace::legs {

struct RetryPauses {
  std::chrono::milliseconds first{250};
  std::chrono::milliseconds longest{4'000};  // after it is there again it computes again within five seconds
  // A node that was back for so long begins with the first pause again; one that is lost sooner goes on growing.
  std::chrono::milliseconds steady{60'000};
};

class RetrySchedule {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  RetrySchedule(std::size_t nodes, const RetryPauses& pauses) : pauses_(pauses), nodes_(nodes) {}

  // The node is lost: tried again after a pause.
  void lost(std::size_t node, TimePoint now);
  // It is being tried: not due before failed() or back().
  void trying(std::size_t node) { nodes_[node].waits = false; }
  // It was tried in vain.
  void failed(std::size_t node, TimePoint now) { pause(node, now); }
  // It is back, and tried no more until it is lost.
  void back(std::size_t node, TimePoint now);
  // Never tried again.
  void give_up(std::size_t node) { nodes_[node].waits = false; }

  // Who is to be tried now; empty: nobody.
  std::optional<std::size_t> due(TimePoint now) const;
  // When somebody will be; empty: nobody waits.
  std::optional<TimePoint> next() const;

 private:
  struct Node {
    bool waits = false;
    TimePoint failed_at{};  // lost, or last tried in vain
    TimePoint back_at{};
    std::chrono::milliseconds pause{0};  // the last; 0: none yet
  };
  void pause(std::size_t node, TimePoint now);

  RetryPauses pauses_;
  std::vector<Node> nodes_;
};

}  // namespace terrace::legs
