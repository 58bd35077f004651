// GET /tiers: who computes which experts, and how they do: what the page's tier view shows, for programs too.
#pragma once

#include <chrono>
#include <string>

#include "coordinator/legs/expert_use.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve::page {

// JSON; docs/http.md lists its fields. Counts are since the start, so that a reader makes rates of two answers and
// their `at_ms`: `at` is the time of a clock that only rises. use: as the dispatcher of `owners` counts it; null: the
// map of experts is left out. Pure; any thread.
std::string tiers_json(const SchedulerStatus& status, const legs::OwnerTable& owners, const legs::ExpertUse* use,
                       std::chrono::milliseconds at);

}  // namespace terrace::serve::page
