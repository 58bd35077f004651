// The daemon: everything put together, from self check to drain.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "tier_node/app/options.h"

namespace terrace::node {

// Serves until SIGTERM, SIGINT or the end of a drain. cache_dir: of manifests; empty: none.
// kInvalidArgument (exit code 2): a flag's value. Everything else: exit code 1.
Status run_node(const NodeOptions& options, const std::filesystem::path& cache_dir, const Logger& log);

}  // namespace terrace::node
