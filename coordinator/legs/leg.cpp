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
  }
  return "unknown";
}

}  // namespace terrace::legs
