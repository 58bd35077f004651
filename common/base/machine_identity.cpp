#include "common/base/machine_identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace terrace {

// FNV-1a of the kernel's boot id.
std::uint64_t machine_id(const SystemRoots& roots) {
  std::ifstream in(roots.proc / "sys/kernel/random/boot_id");
  std::string text;
  if (!(in >> text)) return 0;
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return std::max<std::uint64_t>(hash, 1);
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

std::uint64_t last_level_cache_bytes() {
  return static_cast<std::uint64_t>(std::max({sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE), 0L}));
}

}  // namespace terrace
