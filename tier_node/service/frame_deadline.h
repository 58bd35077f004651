// Until when the frame that a connection is receiving must have come further.
//
// A coordinator keeps its session by heartbeats on the control port, so one that stops in the middle of a frame, or
// sends a byte of it now and then, would hold its connection, its buffer and its session for ever. Between frames it
// may be mute: an idle coordinator is.
//
// Threads  One at a time.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "tier_node/session/session.h"  // TimePoint

namespace terrace::node {

// How slowly a frame may come (docs/wire.md 7). `base` is the time after which a silent end is given up everywhere
// else: the default lease, and the coordinator's liveness timeout. The least rate is what the slowest links in use
// still carry on each of three lanes at once: a third of half a megabit a second.
struct FrameTimeLimit {
  std::chrono::milliseconds base{10'000};
  std::uint64_t least_rate = 16'384;  // bytes a second, at least 1
};

// A frame is late once more than base + (bytes that have come) / least_rate has passed since its first byte was seen.
// Sent steadily at the least rate or faster it is never late, however long it is; whatever length its header states, it
// buys no time by it: one that stops is late `base` after the least rate would have brought what is there. Only where
// the transport does not know what has come (UCX) is a frame given the time of its whole length.
class FrameDeadline {
 public:
  // No frame is unfinished.
  void clear() { at_ = TimePoint::max(); }
  // `frame` is unfinished (bytes > 0) at `now`. kDeadline: it is late; says what came, in what time, and the limit.
  Status check(const transport::UnfinishedFrame& frame, const FrameTimeLimit& limit, TimePoint now);
  // When check() has to be asked again, should nothing more come: TimePoint::max() when no frame is unfinished.
  TimePoint at() const { return at_; }

 private:
  std::uint64_t number_ = 0;  // of the frame, valid unless at_ is max()
  TimePoint first_seen_;
  TimePoint at_ = TimePoint::max();
};

}  // namespace terrace::node
