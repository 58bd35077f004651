#include <fmt/format.h>

#include "common/transport/connection.h"

namespace terrace::transport {

Status check(const Options& options) {
  if (options.receive_window < options.largest_frame)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a receive window of {} bytes holds no frame of {}, the largest announced",
                             options.receive_window, options.largest_frame));
  if (options.max_open_sends == 0)
    return Error(ErrorCode::kInvalidArgument, "no open send is allowed: nothing could be sent");
  if (options.key != nullptr)
    return Error(ErrorCode::kInvalidArgument, "a key is given, and this transport proves nothing by it");
  return {};
}

std::string how_much(const UnfinishedFrame& frame) {
  if (frame.frame_bytes == 0) return fmt::format("{} bytes", frame.bytes);
  if (frame.frame_bytes == frame.bytes) return fmt::format("not all {} bytes", frame.bytes);
  return fmt::format("{} of {} bytes", frame.bytes, frame.frame_bytes);
}

}  // namespace terrace::transport
