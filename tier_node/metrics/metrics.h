// What a node tells Prometheus. docs/operations.md lists it; a test compares.
#pragma once

#include <vector>

#include "common/metrics/families.h"
#include "tier_node/session/session_table.h"

namespace terrace::node {

// Of the sessions and their memory; any thread. Of the process itself: metrics::process_families().
std::vector<metrics::Family> node_families(SessionTable& sessions);

}  // namespace terrace::node
