// What this machine is called, what tells whether two programs compute on the same cores, and how much of a measurement
// a cache could answer.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/machine_limits.h"

namespace terrace {

// Equal for all programs of this machine since it was started, those in containers and network namespaces included; of
// another machine, or after another start, another number. Says nothing else of the machine. 0: the system does not
// tell.
std::uint64_t machine_id(const SystemRoots& roots = {});

// What gethostname() says; empty where it says nothing.
std::string machine_name();

// Bytes of the last-level cache as the C library tells it; 0: it does not.
std::uint64_t last_level_cache_bytes();

}  // namespace terrace
