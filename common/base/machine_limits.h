// What this process may use: the machine's free memory and what a container (cgroup version 1 or 2) leaves of it.
// Nothing is cached.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "common/base/result.h"

namespace terrace {

// Where the kernel's files are; tests put their own there.
struct SystemRoots {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
};

// Bytes that can be taken now without swapping: the least of MemAvailable and, for this process's cgroup and each one
// above it, limit minus use. Use leaves out the page cache that has not been read lately (inactive_file): the kernel
// gives it back at once, and a model file that was just loaded would otherwise count as memory gone.
// kIo: /proc/meminfo cannot be read or has no MemAvailable.
Result<std::uint64_t> memory_available(const SystemRoots& roots = {});

// CPUs' worth of time that the cgroups allow ("1.5"), the least of all levels; nothing where there is no limit.
std::optional<double> cpu_quota(const SystemRoots& roots = {});

// Lets this process open `wanted` descriptors, as far as it may without asking anybody: the soft limit rises up to the
// hard one, and never falls. Returns how many it may open now.
std::uint64_t raise_descriptor_limit(std::uint64_t wanted = UINT64_MAX);

}  // namespace terrace
