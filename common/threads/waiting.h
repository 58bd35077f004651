// How the threads of this process wait for each other and for their peers. Decided once (choose_cpus()), handed down to
// whatever waits, shown in `status`; nothing else decides it.
//
// Who waits how   The pool's threads (for a run, and its caller for them) and the step's thread (for a node's reply)
//                 follow the policy, and a node's I/O thread does while a coordinator's next layer comes soon enough
//                 for a spin. Everything else always blocks: most coordinators' next layer is further away than any
//                 spin that is worth its power, and the rest (control plane, leases, loading) is not in a hurry.
#pragma once

#include <chrono>
#include <cstdint>

namespace terrace {

enum class Waiting : std::uint8_t {
  kBlock,         // sleep at once: with one core the spinner would hold what the work needs
  kSpinThenPark,  // look for kSpinTime, then sleep
};

inline const char* name(Waiting waiting) { return waiting == Waiting::kBlock ? "block" : "spin then park"; }

// Longer than the serial work between two operations of one layer, shorter than what a person or a battery notices.
inline constexpr std::chrono::microseconds kSpinTime{50};

}  // namespace terrace
