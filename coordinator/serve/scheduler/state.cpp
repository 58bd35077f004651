#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve {

const char* name(EndReason reason) {
  switch (reason) {
    case EndReason::kEos:
      return "eos";
    case EndReason::kLimit:
      return "limit";
    case EndReason::kStop:
      return "stop";
    case EndReason::kContext:
      return "context";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kStopping:
      return "stopping";
  }
  return "unknown";
}

const char* name(SlotState state) {
  switch (state) {
    case SlotState::kIdle:
      return "idle";
    case SlotState::kWaiting:
      return "waiting";
    case SlotState::kPrompt:
      return "prompt";
    case SlotState::kDecoding:
      return "decoding";
  }
  return "unknown";
}

}  // namespace terrace::serve
