#include "tier_node/service/frame_deadline.h"

#include <fmt/core.h>

#include <string>

#include "common/base/units.h"

namespace terrace::node {
namespace {

std::string progress(const transport::UnfinishedFrame& frame) {
  if (frame.frame_bytes == 0) return fmt::format("{} bytes", frame.bytes);
  if (frame.frame_bytes == frame.bytes) return fmt::format("not all {} bytes", frame.bytes);
  return fmt::format("{} of {} bytes", frame.bytes, frame.frame_bytes);
}

}  // namespace

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
                  progress(frame), format_duration(now - first_seen_), format_duration(limit.base), limit.least_rate));
}

}  // namespace terrace::node
