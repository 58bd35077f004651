// The one place where this program's threads begin.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "common/base/result.h"

namespace terrace {

// Runs `body` by a new thread of that name, at most 15 characters, by which top, ps and debuggers show it from the
// return on. The result has to be joined. body: must not throw.
// kOutOfMemory: the system gives no thread, `body` was not run; the text names the thread and the limits to look at.
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

}  // namespace terrace
