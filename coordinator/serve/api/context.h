// What answers need to know of the server, so that nothing here knows an engine, a socket or a clock of its own.
//
// Threads  Made once, before the first request; then read by any number of threads. `unix_seconds` and `random` are
//          called by any of them.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

#include "coordinator/sampler/grammar/grammar_cache.h"
#include "coordinator/sampler/sampler.h"
#include "coordinator/text/jinja/template.h"
#include "coordinator/text/tokenizer.h"

namespace terrace::serve::api {

// What the model file says of itself, for GET /v1/models and /props.
struct ModelFacts {
  std::string name;                     // the id that clients see: the file's name, or the alias that the user gave
  std::string path;                     // as the user gave it
  std::string file_type;                // "Q4_K - Medium"; empty: not known
  std::uint64_t n_context_trained = 0;  // tokens
  std::uint64_t n_embedding = 0;        // d_model
  std::uint64_t n_parameters = 0;
  std::uint64_t size_bytes = 0;  // of all tensors
};

struct Context {
  ModelFacts model;
  const text::Tokenizer* tokenizer = nullptr;            // borrowed; never null
  const text::jinja::Template* chat_template = nullptr;  // borrowed; null: there is none that works
  std::string chat_template_source;                      // as the file carries it
  std::string no_template;            // with a null chat_template: why, as a sentence; chat routes answer with it
  std::uint32_t context_tokens = 0;   // tokens that one sequence may have, prompt included
  std::uint32_t n_slots = 1;          // sequences at once; `n` of a request is at most this
  sampler::SamplingOptions sampling;  // where a request names nothing; llama-server's are those of default_sampling()
  sampler::GrammarCache* grammars = nullptr;  // borrowed; null: each request compiles its own
  std::string build;                          // system_fingerprint and build_info
  std::int64_t started = 0;                   // Unix seconds: `created` of the model
  bool slots_route = true;                    // GET /slots and POST /slots/ID are answered
  bool metrics_route = true;                  // only told by /props
  bool slot_files = false;                    // slots may be saved and restored: a folder for them was given

  std::function<std::int64_t()> unix_seconds;  // of now
  std::function<std::tm()> local_time;         // of now, for templates that tell the date
  std::function<std::uint64_t()> random;       // 64 bits that nobody can guess: ids, and seeds where none was asked for
};

// llama-server's defaults, the same on every route: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
sampler::SamplingOptions default_sampling();

}  // namespace terrace::serve::api
