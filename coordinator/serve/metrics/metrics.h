// What the coordinator's server tells Prometheus: the scheduler's numbers under our names (terrace_*) and, where they
// mean the same, under those that llama-server has (llamacpp:*), so that dashboards made for it go on working.
// docs/operations.md lists them; a test compares.
#pragma once

#include <vector>

#include "common/metrics/families.h"
#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve {

// Pure; any thread. Of the process itself: metrics::process_families().
std::vector<metrics::Family> scheduler_families(const SchedulerStatus& status);

}  // namespace terrace::serve
