#include "coordinator/app/leg_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/console.h"
#include "common/base/units.h"

namespace terrace::app {

nlohmann::ordered_json legs_json(std::span<const legs::LegReport> legs) {
  std::vector<legs::LegCounters> counters;
  for (const legs::LegReport& leg : legs) counters.push_back(leg.counters);
  return legs_json(legs, counters);
}

nlohmann::ordered_json legs_json(std::span<const legs::LegReport> legs, std::span<const legs::LegCounters> counters) {
  auto array = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const legs::LegReport& leg = legs[i];
    const legs::LegCounters& c = counters[i];
    array.push_back({{"name", leg.name},
                     {"kind", legs::name(leg.kind)},
                     {"state", legs::name(leg.state)},
                     {"experts", leg.experts},
                     {"batches", c.batches},
                     {"rows", c.rows},
                     {"pairs", c.pairs},
                     {"hedged_pairs", c.hedged_pairs},
                     {"bytes_sent", c.bytes_sent},
                     {"bytes_received", c.bytes_received},
                     {"weight_bytes_sent", c.weight_bytes_sent},
                     {"wait_us", c.wait_us},
                     {"compute_us", c.compute_us},
                     {"round_trip_us", c.round_trip_us},
                     {"hedges", c.hedges},
                     {"false_hedges", c.false_hedges},
                     {"late", c.late},
                     {"skipped", c.skipped},
                     {"refused", c.refused},
                     {"losses", c.losses},
                     {"wrongs", c.wrongs},
                     {"rejoins", c.rejoins},
                     {"audited_pairs", c.audited_pairs},
                     {"backstop_bytes", c.backstop_bytes},
                     {"backstop_us", c.backstop_us},
                     {"reason", leg.reason}});
  }
  return array;
}

void print_legs(std::span<const legs::LegReport> legs, std::uint64_t tokens) {
  if (legs.size() < 2) return;
  std::uint64_t pairs = 0;
  std::size_t width = 4;
  for (const legs::LegReport& leg : legs) {
    pairs += leg.counters.pairs;
    width = std::max(width, leg.name.size());
  }
  print_err("  {:<{}}  {:>7}  {:>6}  {:>11}  {:>11}  {:>9}  {:>9}  {:>9}\n", "leg", width, "experts", "pairs",
            "sent/token", "recv/token", "weights", "wait", "compute");
  for (const legs::LegReport& leg : legs) {
    const legs::LegCounters& c = leg.counters;
    const double share = pairs == 0 ? 0 : 100.0 * static_cast<double>(c.pairs) / static_cast<double>(pairs);
    const std::uint64_t per = std::max<std::uint64_t>(tokens, 1);
    print_err("  {:<{}}  {:>7}  {:>5.1f}%  {:>11}  {:>11}  {:>9}  {:>6} ms  {:>6} ms\n", leg.name, width, leg.experts,
              share, format_size(c.bytes_sent / per), format_size(c.bytes_received / per),
              format_size(c.weight_bytes_sent), c.wait_us / 1000, c.compute_us / 1000);
  }
  for (const legs::LegReport& leg : legs) {
    if (leg.counters.hedged_pairs == 0 && leg.state == legs::LegState::kOk) continue;
    print_err("  {}: {}; {} of its pairs were computed here instead{}{}\n", leg.name, legs::name(leg.state),
              leg.counters.hedged_pairs, leg.reason.empty() ? "" : ": ", leg.reason);
  }
}

}  // namespace terrace::app
