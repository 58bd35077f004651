#include "common/base/machine_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/split_list.h"
#include "common/base/text_file.h"

namespace terrace {
namespace {

using std::filesystem::path;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of a file below /proc or /sys
constexpr std::uint64_t kNoLimit = 1ull << 62;  // version 1 writes "no limit" as the largest page-aligned int64

std::optional<std::string> text_of(const path& file) {
  auto text = read_text_file(file, kMostBytes);
  if (!text.ok()) return std::nullopt;
  return std::move(*text);
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const path& file) {
  const auto text = text_of(file);
  return text ? leading_number(*text) : std::nullopt;
}

// The number behind `key` at the start of a line ("MemAvailable:   123 kB", "inactive_file 456").
std::optional<std::uint64_t> read_field(const path& file, std::string_view key) {
  const auto text = text_of(file);
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return leading_number(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

bool names_controller(std::string_view list, std::string_view controller) {
  const std::vector<std::string_view> names = split_list(list);
  return std::ranges::find(names, controller) != names.end();
}

struct Hierarchy {
  int version = 2;
  std::vector<path> folders;  // this process's cgroup, then each above it
};

// The folders in which `controller` limits this process. /proc/self/cgroup has lines "id:controllers:path"; version 2
// has id 0 and no controllers. Inside a container the path may not exist below the mount: its root then is ours.
std::vector<Hierarchy> hierarchies(const SystemRoots& roots, std::string_view controller) {
  std::vector<Hierarchy> found;
  std::istringstream lines(text_of(roots.proc / "self" / "cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const path below = path(line.substr(second + 1)).relative_path();
    Hierarchy h;
    path root = roots.cgroup;
    if (!controllers.empty()) {
      if (!names_controller(controllers, controller)) continue;
      h.version = 1;
      root = roots.cgroup / controllers;
      std::error_code error;
      if (!std::filesystem::is_directory(root, error)) root = roots.cgroup / controller;
    }
    for (path p = below; !p.empty(); p = p.parent_path()) h.folders.push_back(root / p);
    h.folders.push_back(root);
    found.push_back(std::move(h));
  }
  return found;
}

// Limit minus use of one folder, or nothing where it sets no limit.
std::optional<std::uint64_t> memory_left(const path& folder, int version) {
  const bool v2 = version == 2;
  const auto limit = read_number(folder / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = read_number(folder / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  const std::uint64_t cache =
      read_field(folder / "memory.stat", v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  const std::uint64_t held = *used - std::min(cache, *used);
  return *limit - std::min(held, *limit);
}

std::optional<double> quota_of(const path& folder, int version) {
  std::optional<std::uint64_t> quota, period;
  if (version == 2) {
    const std::string text = text_of(folder / "cpu.max").value_or("");  // "50000 100000" or "max 100000"
    quota = leading_number(text);
    period = leading_number(std::string_view(text).substr(std::min(text.find(' '), text.size())));
  } else {
    quota = read_number(folder / "cpu.cfs_quota_us");  // -1: no limit, and no number to us
    period = read_number(folder / "cpu.cfs_period_us");
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The least that `value_of` finds in the hierarchies of `controller`.
template <class T>
std::optional<T> least(const SystemRoots& roots, std::string_view controller,
                       std::optional<T> (*value_of)(const path&, int)) {
  std::optional<T> result;
  for (const Hierarchy& h : hierarchies(roots, controller)) {
    for (const path& folder : h.folders) {
      const std::optional<T> value = value_of(folder, h.version);
      if (value && (!result || *value < *result)) result = value;
    }
  }
  return result;
}

}  // namespace

Result<std::uint64_t> memory_available(const SystemRoots& roots) {
  const path meminfo = roots.proc / "meminfo";
  const auto kib = read_field(meminfo, "MemAvailable:");
  if (!kib) return Error(ErrorCode::kIo, fmt::format("{}: no line MemAvailable can be read", meminfo.string()));
  const std::uint64_t machine = *kib * 1024;
  return std::min(machine, least<std::uint64_t>(roots, "memory", memory_left).value_or(machine));
}

std::uint64_t raise_descriptor_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  rlimit raised = limit;
  raised.rlim_cur = std::min<std::uint64_t>(raised.rlim_max, wanted);
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

std::optional<double> cpu_quota(const SystemRoots& roots) { return least<double>(roots, "cpu", quota_of); }

}  // namespace terrace
