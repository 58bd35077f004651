// `terrace bench --legs-alone`: a step beside what its parts take alone. The steps of a test are recorded; then the
// trunk takes the very same steps with nobody to wait for, and each leg computes the very same batches with nothing
// beside it: a node over its link, from the sending of a batch until its sums are added.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/app/bench_run.h"
#include "coordinator/app/engine.h"
#include "coordinator/legs/leg.h"

namespace terrace::app {

struct LegAlone {
  std::string name;
  legs::LegKind kind = legs::LegKind::kHost;
  double pairs = 0;      // of a step
  double seconds = 0;    // of its batches in a step, all layers
  double computing = 0;  // of a node: of `seconds`, what it says that it computed; the rest is the way there and back
  std::size_t longest = 0;  // layers, of all steps, in which no other leg took longer
};

// Each a step's mean.
struct LegsAloneResult {
  BenchTest test;
  double step_seconds = 0;  // with all legs beside each other
  double trunk_seconds = 0;
  std::vector<LegAlone> legs;  // that have experts
  double longest_seconds = 0;  // the sum over layers of the leg that took longest there
  std::size_t n_layers = 0;    // of all steps

  // The sum over layers of the trunk and the longest leg.
  double sum_seconds() const { return trunk_seconds + longest_seconds; }
};

// The longest leg of each batch: seconds [legs][batches]; ties go to the first. Adds to LegAlone::longest.
double sum_of_longest(const std::vector<std::vector<double>>& seconds, std::span<LegAlone> legs);

// Before anything is measured: whether there is something to compare. kInvalidArgument: one leg has all experts.
Status check_legs_alone(const Engine& engine);

// Of a test that generates, and an engine that was opened with ModelOptions::records_experts. kInvalidArgument: one leg
// has all experts. kPeerGone: a leg went away meanwhile. Else the trunk's and the legs' errors. Owner thread of the
// engine.
Result<LegsAloneResult> run_legs_alone(Engine& engine, const BenchTest& test, std::uint32_t repeats);

// The row's own keys of --json.
nlohmann::ordered_json to_json(const LegsAloneResult& result);
// What a person reads of it: some lines.
std::string to_text(const LegsAloneResult& result);

}  // namespace terrace::app
