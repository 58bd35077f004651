// How children of the tests are started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace terrace::test {

// Starts arguments[0] with these standard streams, this process's environment (without TERRACE_*, caches below
// cache_dir()) and `variables` ("NAME=VALUE") besides. The child dies with the thread that starts it.
// controlling_terminal: fds[0] is a terminal, and becomes that of a session of its own. network: a descriptor of the
// network namespace that the child runs in (network.h); -1: this process's.
pid_t spawn(std::vector<std::string> arguments, const int (&fds)[3], const std::vector<std::string>& variables = {},
            bool controlling_terminal = false, int network = -1);

}  // namespace terrace::test
