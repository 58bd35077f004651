// The keys by which data connections prove themselves.
#pragma once

#include "common/transport/sealed/link_key.h"
#include "tier_node/session/session_table.h"

namespace terrace::node {

// Finds the keys of open sessions. `sessions` is borrowed: it outlives what is made with the result.
transport::KeyFinder data_keys(const SessionTable& sessions);

}  // namespace terrace::node
