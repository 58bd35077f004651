// The part of `terrace bench` that measures what serving adds to a model's steps: how long a new request waits beside
// others, what a prompt costs those that decode, what the scheduler and HTTP take of a token, what a kept prefix saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/base/environment.h"
#include "common/base/result.h"
#include "coordinator/app/model_options.h"

namespace terrace::app {

struct ServingTest {
  std::uint32_t streams = 8;  // slots; one of them takes the request that is measured
  std::uint32_t repeats = 5;
  std::uint32_t n_gen = 64;          // tokens whose steps are compared
  std::uint32_t short_prompt = 32;   // tokens of the request that comes to the others
  std::uint32_t long_prompt = 1024;  // of a prompt that is being computed when it comes
  std::uint32_t prefix = 4096;       // tokens that two prompts share
  std::uint32_t new_tokens = 64;     // of the second one
};

// Milliseconds, but where a name says otherwise.
struct FirstToken {  // of a short request, beside streams that decode and a long prompt
  double worst = 0;
  double mean = 0;
  double alone = 0;          // the same request, nothing beside it
  double longest_mixed = 0;  // step, of this run
  double bound() const { return alone + 1.5 * longest_mixed; }
};
struct MixedStep {
  double mixed = 0;   // median of the steps of as many decoding streams as `decode` and a whole chunk
  double decode = 0;  // median of the steps without a prompt
  double chunk = 0;   // median of the steps of a chunk alone
  double bound() const { return 2 * decode + chunk; }
};
struct TokenCost {              // of one stream, microseconds a token
  double generate = 0;          // from token to token
  double generate_outside = 0;  // of it, outside the trunk
  double serve = 0;             // the same over HTTP
  double serve_outside = 0;
  static constexpr double kMostAdded = 50;
  double added() const { return serve_outside - generate_outside; }
};
struct SharedPrefix {
  double first_token = 0;  // of a prompt whose beginning is kept
  double new_tokens = 0;   // a step of its new tokens at the same depth
};

struct ServingResult {
  ServingTest test;
  std::string model, isa;
  std::size_t threads = 0;
  FirstToken first_token;
  MixedStep mixed_step;
  TokenCost token_cost;
  SharedPrefix shared_prefix;
};

// Loads the model as `terrace serve` does, with an HTTP server on a free port of loopback, and measures. Errors as
// Engine::open() and Scheduler::make(); kContextFull: a context that is too short to measure in. Where it is shorter
// than the prompts of `test`, these are shorter; the result tells their lengths.
Result<ServingResult> run_serving(const ModelOptions& model, const Environment& environment, const ServingTest& test);

// One row a figure, with its terms and what it is held against: `ratio` is at most 1 where it is kept.
std::vector<nlohmann::ordered_json> to_json(const ServingResult& result);
std::string to_text(const ServingResult& result);

}  // namespace terrace::app
