// What the scheduler tells of itself, for /slots, /metrics, /health and the tier view: plain values, copied out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/legs/leg.h"
#include "coordinator/serve/scheduler/histogram.h"
#include "coordinator/serve/scheduler/leg_steps.h"
#include "coordinator/serve/scheduler/request.h"

namespace terrace::serve {

enum class SlotState : std::uint8_t {
  kIdle,
  kWaiting,  // for memory, or for a prefix that another slot computes
  kPrompt,
  kDecoding,
};
const char* name(SlotState state);  // "idle", "waiting", "prompt", "decoding"

struct SlotStatus {
  std::uint32_t id = 0;
  SlotState state = SlotState::kIdle;
  RequestId request = 0;            // 0 while idle; likewise the counts of the request below
  std::uint32_t prompt_tokens = 0;  // of the prompt
  std::uint32_t prompt_cached = 0;
  std::uint32_t prompt_processed = 0;       // computed for this request
  std::uint64_t decoded = 0;                // tokens made
  std::uint64_t remaining = 0;              // of max_tokens; kUnlimited likewise
  bool has_new_line = false;                // in what was made
  std::shared_ptr<const std::string> note;  // Request::note
  std::uint32_t stored_tokens = 0;          // positions of the slot's sequence, kept while idle
};

// Since the scheduler was made.
struct Counters {
  std::uint64_t requests = 0;          // submitted
  std::uint64_t requests_refused = 0;  // by a full queue
  std::uint64_t requests_ended = 0;    // of their own: eos, limit, stop, context
  std::uint64_t requests_cancelled = 0;
  std::uint64_t requests_failed = 0;  // ended by on_error(), or by stop()
  std::uint64_t prompt_tokens = 0;    // computed, those that were computed again included
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t tokens = 0;  // made
  std::uint64_t steps = 0;
  std::uint64_t steps_failed = 0;
  std::uint64_t rows = 0;            // of all steps
  std::uint64_t busy_slots = 0;      // sum over steps
  std::uint64_t preemptions = 0;     // streams that gave their memory back and computed again
  std::uint64_t roll_backs = 0;      // steps after which streams computed again what a wrong node had a part in
  std::uint64_t evictions = 0;       // sequences that were kept for reuse and made room
  double prompt_seconds = 0;         // of steps with rows of prompts
  double decode_seconds = 0;         // of steps without
  std::uint32_t longest_tokens = 0;  // longest sequence so far
};

struct LegStatus {
  std::string name;
  legs::LegKind kind = legs::LegKind::kHost;
  legs::LegState state = legs::LegState::kOk;
  std::uint64_t experts = 0;
  legs::LegCounters counters;
  std::string reason{};  // of a state that is not ok
  LegStepTimes steps{};
};

struct SchedulerStatus {
  std::vector<SlotStatus> slots;
  std::uint32_t context = 0;  // positions of a slot
  std::uint32_t queued = 0;   // requests that wait for a slot
  std::uint32_t queue_limit = 0;
  bool stopping = false;
  Counters counters;
  Histogram first_token_seconds{100e-6};  // from submit() to the first token
  Histogram token_seconds{100e-6};        // between two tokens of a stream
  Histogram queue_seconds{100e-6};        // from submit() to a slot
  Histogram step_seconds{100e-6};
  Histogram mixed_step_seconds{100e-6};  // those of steps with rows of prompts and decoding streams
  Histogram rows_per_step{1};
  std::vector<LegStatus> legs;
  std::vector<LegStepTimes> leg_steps;  // [legs], as LegStatus::steps
  // Keys and values, in bytes.
  std::uint64_t cache_bytes = 0;          // in use
  std::uint64_t cache_bytes_resting = 0;  // of them, held only by sequences kept for reuse
  std::uint64_t cache_budget = 0;         // 0: what the machine gives
  std::uint32_t resting_sequences = 0;
  // The last step's error, until a step works again: what /health should tell. A failed row is none.
  std::optional<Error> step_error;
};

}  // namespace terrace::serve
