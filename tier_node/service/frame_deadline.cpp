#include "tier_node/service/frame_deadline.h"

#include <fmt/core.h>

#include "common/base/units.h"

namespace terrace::node {

Status FrameDeadline::check(const transport::UnfinishedFrame& frame, const FrameTimeLimit& limit, TimePoint now) {
  if (at_ == TimePoint::max() || number_ != frame.number) {
    number_ = frame.number;
    first_seen_ = now;
  }
  // A frame has at most 2^30 bytes: no overflow.
  at_ = first_seen_ + limit.base + std::chrono::milliseconds(frame.bytes * 1000 / limit.least_rate);
  if (now < at_) return {};
  return Error(
      ErrorCode::kDeadline,
      fmt::format("{} of a frame came in {}; {} are allowed, and a second more for each {} bytes that came",
                  how_much(frame), format_duration(now - first_seen_), format_duration(limit.base), limit.least_rate));
}

}  // namespace terrace::node
