// How an item of Parallel::run_in_order() waits for a lower one.
#pragma once

#include <thread>

namespace terrace {

// Gives the core to whoever wants it, among them perhaps the thread that is waited for; returns at once where nobody
// does. For waits as short as one item of work.
inline void yield_core() { std::this_thread::yield(); }

}  // namespace terrace
