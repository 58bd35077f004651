// Every route of `terrace serve`: which function of coordinator/serve/api answers which method and path.
#pragma once

#include "coordinator/serve/http/router.h"
#include "coordinator/serve/routes/backend.h"

namespace terrace::serve {

// backend: borrowed; may still be empty.
http::Router make_router(const Backend& backend);

}  // namespace terrace::serve
