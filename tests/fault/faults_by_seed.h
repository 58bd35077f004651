// What simulations draw from their seeds.
#pragma once

#include <cstdint>
#include <random>

#include "common/transport/faulty/fault_script.h"

namespace terrace::legs::test {

// Delays, and up to two faults of a link; none before the first_frame-th frame of a connection.
inline transport::FaultScript draw_script(std::mt19937_64& random, std::uint64_t first_frame) {
  using transport::Direction;
  using transport::Fault;
  transport::FaultScript script;
  script.seed = random();
  for (std::size_t i = 0; i < 2; ++i) {
    script.delay[i] = std::chrono::microseconds(random() % 100);
    script.jitter[i] = std::chrono::microseconds(random() % 2 == 0 ? random() % 300 : random() % 20'000);
  }
  constexpr Fault::Kind kKinds[] = {Fault::Kind::kCut,   Fault::Kind::kCorrupt, Fault::Kind::kTruncate,
                                    Fault::Kind::kDrop,  Fault::Kind::kStall,   Fault::Kind::kDelay,
                                    Fault::Kind::kStarve};
  for (std::uint64_t n = random() % 3; n > 0; --n) {
    Fault fault;
    fault.kind = kKinds[random() % std::size(kKinds)];
    if (random() % 2 == 0) fault.direction = random() % 2 == 0 ? Direction::kOut : Direction::kIn;
    fault.frame = first_frame + random() % 30;
    fault.everywhere = random() % 2 == 0;
    fault.bytes = 1 + random() % 200;
    fault.delay = std::chrono::microseconds(random() % 200'000);
    script.faults.push_back(fault);
  }
  return script;
}

}  // namespace terrace::legs::test
