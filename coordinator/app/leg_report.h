// What the legs of a run did, for JSON and for people.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "coordinator/legs/leg.h"

namespace terrace::app {

// The array "legs" of `generate` and `bench`: what each leg counted since it was made.
nlohmann::ordered_json legs_json(const std::vector<legs::Leg*>& legs);
// The same with other counters, one of each leg: those of a part of the run.
nlohmann::ordered_json legs_json(const std::vector<legs::Leg*>& legs, std::span<const legs::LegCounters> counters);

// A table on stderr: experts, share of pairs, bytes on the wire a token, waiting and computing. `tokens`: rows that
// went through the model.
void print_legs(const std::vector<legs::Leg*>& legs, std::uint64_t tokens);

}  // namespace terrace::app
