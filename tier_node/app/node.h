// The daemon: everything put together, from self check to drain.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "common/base/service_manager.h"
#include "tier_node/app/options.h"

namespace terrace::node {

// Serves until SIGTERM, SIGINT or the end of a drain. cache_dir: of manifests; empty: none. The manager hears when the
// node listens and when it begins to drain.
// kInvalidArgument (exit code 2): a flag's value. Everything else: exit code 1.
Status run_node(const NodeOptions& options, const std::filesystem::path& cache_dir, const ServiceManager& manager,
                const Logger& log);

}  // namespace terrace::node
