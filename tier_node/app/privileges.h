// Rights that a node has no use for.
#pragma once

#include "common/base/log.h"

namespace terrace::node {

// From now on neither this process nor one that it started could gain rights, by set-user-ID programs or otherwise.
// What it began with stays: units and containers start it with none (deploy/). Says so where that is root's. Before any
// thread is started, since each has its own.
void give_up_privileges(const Logger& log);

}  // namespace terrace::node
