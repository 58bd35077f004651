#include "common/base/result.h"

#include <cstdio>
#include <cstdlib>

namespace terrace {

void check_failed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "%s:%d: internal error, this is a bug in Terrace: %s (%s)\n", file, line, message, condition);
  std::fflush(stderr);
  std::abort();
}

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kCorrupt:
      return "Corrupt";
    case ErrorCode::kOutOfMemory:
      return "OutOfMemory";
    case ErrorCode::kBusy:
      return "Busy";
    case ErrorCode::kStaleEpoch:
      return "StaleEpoch";
    case ErrorCode::kDeadline:
      return "Deadline";
    case ErrorCode::kPeerGone:
      return "PeerGone";
    case ErrorCode::kRefused:
      return "Refused";
    case ErrorCode::kNotFinite:
      return "NotFinite";
    case ErrorCode::kContextFull:
      return "ContextFull";
    case ErrorCode::kIo:
      return "Io";
    case ErrorCode::kInternal:
      return "Internal";
    case ErrorCode::kUncertain:
      return "Uncertain";
  }
  return "Unknown";
}

}  // namespace terrace
