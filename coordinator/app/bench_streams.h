// The part of `terrace bench` that decodes several streams at once, beside the two limits of that: the weights that all
// rows of a step read together, and the time that the kernels need for them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/base/result.h"
#include "coordinator/app/bench_run.h"
#include "coordinator/app/engine.h"

namespace terrace::app {

struct StreamsTest {
  std::uint32_t streams = 8;
  std::uint32_t depth = 0;  // tokens that each stream has before
  std::uint32_t n_gen = 64;

  std::string name() const;  // "tg64x8"
};

// Each is the mean over the repeats and steps of one run, but for what a whole run has once.
struct StreamsResult {
  StreamsTest test;
  Spread tokens_per_second;     // of all streams together
  Spread one_stream;            // the same of one stream alone, in turn with the others
  double step_seconds = 0;      // from step to step
  double trunk_seconds = 0;     // of it, in the trunk
  double one_step_seconds = 0;  // likewise of one stream alone
  double one_trunk_seconds = 0;
  double distinct_experts = 0;  // of a layer, in a step
  double weight_bytes = 0;      // that a step reads: each chosen expert once
  double kernel_seconds = 0;    // the products of the same rows, replayed
  double read_gb_per_second = 0;

  double weight_seconds() const { return weight_bytes / (read_gb_per_second * 1e9); }
  // streams / max(weight_seconds, kernel_seconds)
  double bound() const;
};

// Decodes the streams through the scheduler's steps, each with the sampler's defaults of `terrace serve`; in turn with
// one stream alone, and with the kernels of the recorded steps. read_gb_per_second: measured by the same threads.
// kContextFull; kInvalidArgument: more streams than the trunk has; else the trunk's errors. Owner thread of the engine.
Result<StreamsResult> run_streams(Engine& engine, const StreamsTest& test, std::uint32_t repeats,
                                  double read_gb_per_second);

// The row's own keys of --json.
nlohmann::ordered_json to_json(const StreamsResult& result);
// What a person reads of it: some lines.
std::string to_text(const StreamsResult& result);

}  // namespace terrace::app
