// From a prompt's ids to a continuation: prompt in batches, then one token a step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/open_stream.h"
#include "coordinator/sampler/sampler.h"

namespace terrace::app {

enum class StopReason : std::uint8_t { kEos, kLimit, kStop, kContext, kInterrupted };
const char* name(StopReason reason);  // "eos", "limit", "stop", "context", "interrupted"

struct GenerationRequest {
  std::vector<std::int32_t> before;  // ids that the stream holds: part of the sampler's history
  std::vector<std::int32_t> prompt;  // ids to compute behind them, BOS included; not empty
  std::uint64_t max_tokens = 256;
  std::uint32_t batch = 512;  // prompt rows of one step
  sampler::SamplingOptions sampling;
  std::vector<std::string> stops;
  bool control_as_text = false;  // control tokens appear in the text
  bool hash_logits = false;      // XXH3-64 of each step's logits
  // Hashes of the experts' sums (sum_hashes.h). On a card steps then come back layer by layer, and take longer.
  bool hash_sums = false;
  // Nothing is given to on_text before the run has ended, and then all at once: the text can be taken back until then.
  bool text_at_end = false;
  // The last step that made a token of `before` which somebody has seen; 0: none has.
  std::uint64_t seen_until_step = 0;
  // Told why tokens are computed again, may be empty.
  std::function<void(const Error&)> on_roll_back;
  // Asked between steps, may be empty: true ends the run (kInterrupted). Tokens of the prompt may then be left over;
  // the stream's length tells.
  std::function<bool()> interrupted;
};

struct Generation {
  std::string text;
  std::vector<std::int32_t> tokens;        // an EOS that ended the run included
  std::vector<std::uint64_t> logits_xxh3;  // one a token, if asked for
  // The same, of all positions computed for a token: the prompt's for the first, then one each.
  std::vector<std::uint64_t> sums_xxh3;
  StopReason stop_reason = StopReason::kLimit;
  std::uint64_t prompt_tokens = 0;
  double prompt_ms = 0;
  double decode_ms = 0;         // from the first chosen token to the last
  double decode_steps_ms = 0;   // of it, in the trunk
  std::uint64_t last_step = 0;  // that made a token; 0: none was made
};

// What can be done about a context of so many positions that is full: "raise --ctx-size", unless it is the model's own.
const char* how_to_lengthen(std::uint32_t context, const arch::ModelInfo& info);

// Whether the request's tokens are the model's, and fit into a context of so many positions: generate() asks, and may
// be asked for before anything is loaded. kContextFull, kInvalidArgument.
Status check_prompt(const GenerationRequest& request, const arch::ModelInfo& info, std::uint32_t context);

// Runs the request on `stream`, which holds `before`. The last token made is not computed, and not in the stream.
// on_text gets the text as it is certain: whole characters, nothing that may belong to a stop string; its error ends
// the run. kContextFull: the prompt leaves no room for a token. kInvalidArgument: empty prompt, ids out of range,
// sampling options. Otherwise the trunk's and legs' errors.
// Where a node was found to compute wrong, what is not certain is computed again (docs/adr/0019): the result is that of
// a run without the node. kUncertain: such a token was given to on_text before; the text names its position.
Result<Generation> generate(Engine& engine, OpenStream& stream, const GenerationRequest& request,
                            FunctionRef<Status(std::string_view)> on_text);
// The same on a stream of its own, closed at the end; `before` is empty.
Result<Generation> generate(Engine& engine, const GenerationRequest& request,
                            FunctionRef<Status(std::string_view)> on_text);

}  // namespace terrace::app
