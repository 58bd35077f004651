// One HTTP request that generates: its requests to the scheduler, what these make, and the answer.
#pragma once

#include <memory>

#include "coordinator/serve/api/generation.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/scheduler/scheduler.h"

namespace terrace::serve {

// Submits the generation's requests and returns; the answer is written as events come, on the scheduler's thread. When
// the client leaves, or the answer ends early, what still runs of it is cancelled. The scheduler outlives the run.
void run_generation(api::Generation generation, std::shared_ptr<http::Exchange> exchange, Scheduler& scheduler);

}  // namespace terrace::serve
