// GET /health: whether this server can do what it is for.
#pragma once

#include "coordinator/serve/http/message.h"
#include "coordinator/serve/scheduler/state.h"

namespace terrace::serve {

// {"status":"ok"} where everything is as it was opened. A node that is lost is told, with 200 as long as steps work
// ({"status":"degraded","nodes":2,"nodes_lost":1}) and with 503 where they fail. A step that failed without a lost node
// is told too ("last_step_failed":true), with 200: the next may work, and a balancer that sent none would never know.
// Open to everyone, so neither names nor reasons: /slots and /metrics have these.
http::Reply health(const SchedulerStatus& status);

}  // namespace terrace::serve
