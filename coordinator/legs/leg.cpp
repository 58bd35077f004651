#include "coordinator/legs/leg.h"

namespace terrace::legs {

const char* name(LegKind kind) {
  switch (kind) {
    case LegKind::kHost:
      return "host";
    case LegKind::kCard:
      return "card";
    case LegKind::kNode:
      return "node";
  }
  return "unknown";
}

const char* name(LegState state) {
  switch (state) {
    case LegState::kOk:
      return "ok";
    case LegState::kLost:
      return "lost";
    case LegState::kWrong:
      return "wrong";
  }
  return "unknown";
}

Status Leg::collect_slots(Ticket, std::span<float>, std::span<std::uint8_t>) {
  return Error(ErrorCode::kUnsupported, name() + " gives no slots");
}

}  // namespace terrace::legs
