// One line of the log for each request.
#pragma once

#include "common/base/log.h"
#include "coordinator/serve/http/server.h"

namespace terrace::serve {

// With the request's id. info; a request that failed through no fault of its client is an error with the reason, a 503
// (the server may do it another time) a warning with it. Requests of monitors, every few seconds, are debug.
void log_served(const Logger& log, const http::Served& served);

}  // namespace terrace::serve
