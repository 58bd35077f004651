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

}  // namespace terrace::transport
