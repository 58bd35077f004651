// What a client asks of the scheduler, and what it hears of it: token ids in, pieces of text and their tokens out.
// Knows no HTTP and no JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/logprobs.h"
#include "coordinator/sampler/sampler.h"

namespace terrace::serve {

// Never 0, never given twice by a scheduler.
using RequestId = std::uint64_t;

// For max_tokens: as many as the context holds.
inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct Request {
  std::vector<std::int32_t> prompt;  // BOS included; not empty
  // Tokens to make. 0: the prompt is computed (and can be reused), nothing is made.
  std::uint64_t max_tokens = kUnlimited;
  sampler::SamplingOptions sampling;  // equal options and seed give equal tokens, whatever runs beside
  std::vector<sampler::LogitBias> logit_bias;
  std::shared_ptr<const sampler::Grammar> grammar;  // null: none
  std::vector<std::string> stops;                   // stop strings; the first to be complete ends the text before it
  bool ignore_eos = false;                          // the model's end tokens are never chosen
  bool control_as_text = false;                     // control tokens appear in the text
  std::uint32_t n_probs = 0;                        // the best candidates told with each token; 0: no logprobs
  bool reuse_prefix = true;                         // what other sequences have computed of the prompt is not again
  std::optional<std::uint32_t> slot;                // waits for this one; empty: any
  bool progress = false;                            // on_prompt_progress() is wanted
  // Kept with the request and told by status() while it has a slot; the caller's own (its settings, as text).
  std::shared_ptr<const std::string> note;
  // Pieces leave for the client as they are told, and cannot be taken back: such a request gets no on_restart().
  bool streamed = true;
  bool hash_logits = false;  // XXH3-64 of each token's logits (Token::logits_xxh3)
  // Whose request it is, for the queue's fairness: clients take turns, each one's requests stay in order. All without a
  // name are one client.
  std::string client;
};

struct Token {
  std::int32_t id = 0;
  std::uint64_t logits_xxh3 = 0;                // if asked for
  const sampler::Logprobs* logprobs = nullptr;  // where n_probs > 0: the token's and those of the n_probs best
};

// Tokens of the prompt.
struct PromptProgress {
  std::uint32_t total = 0;
  std::uint32_t cached = 0;     // taken from another sequence
  std::uint32_t processed = 0;  // are stored, cached ones included
  double ms = 0;                // since a slot took the request
};

// What became certain with one token. Views are valid during the call.
struct Piece {
  // Whole characters, nothing that may belong to a stop string: often empty, and then the text comes with a later
  // piece.
  std::string_view text;
  // The token that was made: one, an end token included. None in the last piece, where text that was held back is told
  // at the end.
  std::span<const Token> tokens;
};

enum class EndReason : std::uint8_t {
  kEos,        // the model made an end token, or the grammar is complete and allows no further token
  kLimit,      // max_tokens
  kStop,       // a stop string
  kContext,    // the context is full
  kCancelled,  // cancel()
  kStopping,   // stop(), before the request was done
};
const char* name(EndReason reason);  // "eos", "limit", "stop", "context", "cancelled", "stopping"

struct Timings {
  std::uint32_t cache_n = 0;      // prompt tokens taken from another sequence
  std::uint32_t prompt_n = 0;     // prompt tokens computed for this request
  double prompt_ms = 0;           // from taking a slot to the first token
  std::uint64_t predicted_n = 0;  // tokens made, an end token included
  double predicted_ms = 0;        // from the first token to the last
  double queue_ms = 0;            // from submit() to taking a slot
};

struct End {
  EndReason reason = EndReason::kEos;
  std::string_view stopping_word;     // with kStop
  std::optional<std::uint32_t> slot;  // empty: never had one
  std::uint32_t prompt_tokens = 0;
  std::uint32_t stored_tokens = 0;  // of prompt and answer in the slot's sequence, kept for reuse
  Timings timings;
};

// Hears of one request. Called on the scheduler's thread, perhaps before submit() has returned: must not block, and
// must not call the scheduler but for cancel(). Order: prompt progress, pieces, then exactly one of on_end() and
// on_error(), after which nothing is called and the scheduler lets go of the listener.
class Listener {
 public:
  virtual ~Listener() = default;
  // With Request::progress: when a slot took the request, and after each step that computed a part of its prompt.
  virtual void on_prompt_progress(const PromptProgress&) {}
  // `so_far`: of the request including this piece.
  virtual void on_piece(const Piece& piece, const Timings& so_far) = 0;
  // What was told in pieces is void (`why`: a node was found to compute wrong), and is told again from the beginning.
  virtual void on_restart(const Error&) {}
  virtual void on_end(const End& end) = 0;
  // The request cannot go on: a value that is not finite (kNotFinite, this stream alone), no memory for it
  // (kOutOfMemory), a step that failed (a leg's error; all its streams), or pieces of a streamed reply that are not
  // certain (kUncertain names the position from which on). Work may have been done: `so_far` tells.
  virtual void on_error(const Error& error, const Timings& so_far) = 0;
};

}  // namespace terrace::serve
