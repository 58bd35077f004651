#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "common/base/version.h"
#include "common/metrics/families.h"

namespace terrace::metrics {
namespace {

Family single(const char* name, Kind kind, const char* help, double value) {
  return {name, kind, help, {{value, {}, {}}}};
}

// Of /proc/self/stat: field numbers as in proc(5), from behind the command's name, which may hold anything.
struct ProcessTimes {
  double cpu_seconds = 0;    // fields 14 and 15, in clock ticks
  double start_seconds = 0;  // field 22, in clock ticks since the machine started
};

std::optional<ProcessTimes> read_stat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessTimes times;
  std::string word;
  for (int field = 3; field <= 22 && fields >> word; ++field) {
    const double value = std::strtod(word.c_str(), nullptr);
    if (field == 14 || field == 15) times.cpu_seconds += value / ticks;
    if (field == 22) times.start_seconds = value / ticks;
  }
  return times;
}

// When the machine started, since 1970.
std::optional<double> boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return std::nullopt;
}

std::optional<double> resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  if (!(file >> size >> resident)) return std::nullopt;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> open_descriptors() {
  std::error_code failed;
  double count = 0;
  for (std::filesystem::directory_iterator each("/proc/self/fd", failed), end; !failed && each != end;
       each.increment(failed))
    ++count;
  if (failed) return std::nullopt;
  return count;
}

}  // namespace

std::optional<double> process_start_seconds() {
  const auto times = read_stat();
  const auto boot = boot_time();
  if (!times || !boot) return std::nullopt;
  return *boot + times->start_seconds;
}

std::vector<Family> process_families() {
  std::vector<Family> families;
  families.push_back({"terrace_build_info",
                      Kind::kGauge,
                      "Always 1; the label says which version runs.",
                      {{1, {{"version", std::string(version())}}, {}}}});
  const auto times = read_stat();
  if (const auto start = process_start_seconds())
    families.push_back(
        single("process_start_time_seconds", Kind::kGauge, "Start of the process, in seconds since 1970.", *start));
  if (times)
    families.push_back(single("process_cpu_seconds_total", Kind::kCounter,
                              "CPU time of all threads, user and system, in seconds.", times->cpu_seconds));
  if (const auto bytes = resident_bytes())
    families.push_back(single("process_resident_memory_bytes", Kind::kGauge,
                              "Memory that is in RAM, pages of the mapped model included.", *bytes));
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0)
    families.push_back({"process_page_faults_total",
                        Kind::kCounter,
                        "Pages that were not there when they were wanted: major had to be read from disk, minor not.",
                        {{static_cast<double>(used.ru_majflt), {{"kind", "major"}}, {}},
                         {static_cast<double>(used.ru_minflt), {{"kind", "minor"}}, {}}}});
  if (const auto count = open_descriptors())
    families.push_back(single("process_open_fds", Kind::kGauge, "Open file descriptors.", *count));
  return families;
}

}  // namespace terrace::metrics
