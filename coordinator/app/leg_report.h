// What the legs of a run did, for JSON and for people.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "coordinator/legs/leg_board.h"

namespace terrace::app {

// The array "legs" of `generate` and `bench`: what each leg counted since it was made, over all its sessions.
nlohmann::ordered_json legs_json(std::span<const legs::LegReport> legs);
// The same with other counters, one of each leg: those of a part of the run.
nlohmann::ordered_json legs_json(std::span<const legs::LegReport> legs, std::span<const legs::LegCounters> counters);

// A table on stderr: experts, share of pairs, bytes on the wire a token, waiting and computing. `tokens`: rows that
// went through the model.
// A leg that failed has a line with the reason below it.
void print_legs(std::span<const legs::LegReport> legs, std::uint64_t tokens);

}  // namespace terrace::app
