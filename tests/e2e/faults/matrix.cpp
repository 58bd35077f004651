#include "tests/e2e/faults/matrix.h"

namespace terrace::test {
namespace {

const char* name(FaultKind fault) {
  switch (fault) {
    case FaultKind::kKilled:
      return "NodeKilled";
    case FaultKind::kStopped:
      return "NodeStopped";
    case FaultKind::kLinkDown:
      return "LinkDown";
    case FaultKind::kLinkUpAgain:
      return "LinkDownAndUpAgain";
    case FaultKind::kCorruptFrame:
      return "CorruptFrame";
    case FaultKind::kTruncatedFrame:
      return "TruncatedFrame";
    case FaultKind::kWrongVersion:
      return "WrongVersion";
    case FaultKind::kWrongHash:
      return "WrongHash";
    case FaultKind::kSlowDisk:
      return "SlowDisk";
    case FaultKind::kOutOfMemory:
      return "NodeOutOfMemory";
    case FaultKind::kFullDisk:
      return "FullDisk";
  }
  return "";
}

const char* name(Phase phase) {
  switch (phase) {
    case Phase::kPrompt:
      return "DuringPrompt";
    case Phase::kDecode:
      return "DuringDecode";
    case Phase::kWeights:
      return "DuringWeights";
    case Phase::kLoad:
      return "DuringLoad";
    case Phase::kIdle:
      return "WhileIdle";
  }
  return "";
}

// A node that says nothing while it is loaded is waited for ten seconds, whatever would be sealed.
bool is_waited_for(const Cell& cell) {
  return cell.phase == Phase::kLoad && (cell.fault == FaultKind::kStopped || cell.fault == FaultKind::kLinkDown ||
                                        cell.fault == FaultKind::kLinkUpAgain);
}

// A sanitizer's own allocations end a program that gets no memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSurvivesWithoutMemory = false;
#else
constexpr bool kSurvivesWithoutMemory = true;
#endif

bool is_possible(const Cell& cell) {
  if (cell.fault == FaultKind::kOutOfMemory && !kSurvivesWithoutMemory) return false;
  return !cell.sealed || !is_waited_for(cell);
}

}  // namespace

std::string name(const Cell& cell) {
  return std::string(name(cell.fault)) + "_" + name(cell.phase) + "_" + (cell.sealed ? "Sealed" : "Plain");
}

std::vector<std::string> needs(const Cell& cell) {
  switch (cell.fault) {
    case FaultKind::kLinkDown:
    case FaultKind::kLinkUpAgain:
      return {"root", "netns"};
    case FaultKind::kSlowDisk:
      return {"root", "netns", "mount", "throttle"};
    case FaultKind::kFullDisk:
      return {"root", "netns", "mount"};
    default:
      return {};
  }
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const FaultKind fault : kAllFaults)
    for (const Phase phase : kAllPhases)
      for (const bool sealed : {false, true})
        if (const Cell cell{fault, phase, sealed}; is_possible(cell)) cells.push_back(cell);
  return cells;
}

}  // namespace terrace::test
