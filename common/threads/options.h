// --threads and --cpu-list, the same in every program that computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/options.h"

namespace terrace {

// Adds both to `table`, which fills what CpuRequest takes (common/threads/cpus.h).
void add_cpu_options(OptionTable& table, std::optional<std::uint32_t>* threads, std::optional<std::string>* cpu_list);

}  // namespace terrace
