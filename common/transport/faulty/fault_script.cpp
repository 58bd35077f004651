#include "common/transport/faulty/fault_script.h"

namespace terrace::transport {

Verdict FaultState::judge(Direction direction) {
  const std::lock_guard lock(mutex_);
  const auto way = static_cast<std::size_t>(direction);
  const std::uint64_t in_both = passed_[0] + passed_[1];
  Verdict verdict;
  verdict.frame = passed_[way]++;
  verdict.delay = script_.delay[way];
  if (const auto jitter = script_.jitter[way].count(); jitter > 0)
    verdict.delay += std::chrono::nanoseconds(random_() % (static_cast<std::uint64_t>(jitter) + 1));
  for (const Fault& fault : script_.faults) {
    if (fault.direction.value_or(direction) != direction) continue;
    if (fault.frame == (fault.direction ? verdict.frame : in_both)) apply(fault, direction, verdict);
  }
  verdict.stall = verdict.stall || stalled_everywhere_[way];
  verdict.starve = verdict.starve || starved_everywhere_[way];
  return verdict;
}

std::uint64_t FaultState::frames() const {
  const std::lock_guard lock(mutex_);
  return passed_[0] + passed_[1];
}

void FaultState::apply(const Fault& fault, Direction direction, Verdict& verdict) {
  const auto way = static_cast<std::size_t>(direction);
  fired_.fetch_add(1, std::memory_order_relaxed);
  switch (fault.kind) {
    case Fault::Kind::kCut:
      verdict.cut_after = fault.bytes;
      if (fault.everywhere) cuts_everywhere_.fetch_add(1, std::memory_order_release);
      break;
    case Fault::Kind::kCorrupt:
      verdict.flip_bit = fault.bit == Fault::kAnyBit ? random_() : fault.bit;
      break;
    case Fault::Kind::kTruncate:
      verdict.truncate = fault.bytes;
      break;
    case Fault::Kind::kDrop:
      verdict.drop = true;
      break;
    case Fault::Kind::kStall:
      verdict.stall = true;
      stalled_everywhere_[way] = stalled_everywhere_[way] || fault.everywhere;
      break;
    case Fault::Kind::kDelay:
      verdict.delay += fault.delay;
      break;
    case Fault::Kind::kStarve:
      verdict.starve = true;
      starved_everywhere_[way] = starved_everywhere_[way] || fault.everywhere;
      break;
  }
}

}  // namespace terrace::transport
