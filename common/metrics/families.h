// Metrics as plain values, and as the text that Prometheus reads (format 0.0.4). A part of the program says what it
// counts as families; nobody registers anything, and nothing is kept between two scrapes but the counts themselves.
//
// Names are Prometheus's own way: base units (seconds, bytes), counters end in _total.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::metrics {

enum class Kind { kCounter, kGauge, kHistogram };
const char* name(Kind kind);  // "counter", "gauge", "histogram"

using Labels = std::vector<std::pair<std::string, std::string>>;  // name, value; any bytes in the value

// counts has one entry more than bounds: what is above all of them. Not cumulative.
struct HistogramCounts {
  std::vector<double> bounds;  // rising
  std::vector<std::uint64_t> counts;
  double sum = 0;
};

struct Sample {
  double value = 0;  // of counters and gauges
  Labels labels;
  HistogramCounts histogram;
};

struct Family {
  std::string name;
  Kind kind = Kind::kGauge;
  std::string help;
  std::vector<Sample> samples;
};

// Content-Type of to_text().
inline constexpr const char* kTextType = "text/plain; version=0.0.4; charset=utf-8";
std::string to_text(std::span<const Family> families);

// What every program tells of itself, under the names that Prometheus's own libraries use: start, CPU seconds, resident
// memory, open descriptors; and terrace_build_info. What the system does not say is left out.
std::vector<Family> process_families();

// When this process was started, in seconds since 1970, to a clock tick; nullopt where the system does not say.
std::optional<double> process_start_seconds();

}  // namespace terrace::metrics
