// The routes that generate: JSON text to requests for the scheduler, the scheduler's events to JSON.
//
//   auto read = read_generation(Route::kChatCompletions, body, context);
//   if (read.refusal) -> answer it
//   submit read.generation->requests[i], each with a listener that hands its events to answer->on_...(i, event)
//   write what each of them returns: Output
//
// An Answer sees the events of all requests of one HTTP request and gives the bytes of its HTTP answer: without
// `stream` nothing until the last request has ended, then the whole body; with it, text/event-stream chunks as they
// come.
//
// Threads  read_generation() is pure. An Answer: one call at a time, on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/api/reply.h"
#include "coordinator/serve/scheduler/request.h"

namespace terrace::serve::api {

enum class Route {
  kChatCompletions,  // POST /v1/chat/completions, /chat/completions
  kTextCompletions,  // POST /v1/completions
  kCompletion,       // POST /completion, /completions: llama-server's own
  kResponses,        // POST /v1/responses
  kMessages,         // POST /v1/messages
};

// What one event adds to the HTTP answer.
struct Output {
  std::string bytes;      // to be sent now; may be empty
  bool finished = false;  // the answer ends with these bytes; no further events are needed
  // The caller cancels this request (its time is over): its on_end() comes all the same.
  bool cancel = false;
};

class Answer {
 public:
  virtual ~Answer() = default;

  // `index` is the place in Generation::requests; the rest as serve::Listener has it. After `finished` an Answer takes
  // further events (of requests that the caller has cancelled) and gives nothing.
  virtual Output on_progress(std::size_t index, const PromptProgress& progress) = 0;
  virtual Output on_piece(std::size_t index, const Piece& piece, const Timings& so_far) = 0;
  virtual Output on_restart(std::size_t index, const Error& why) = 0;
  virtual Output on_end(std::size_t index, const End& end) = 0;
  // Ends the whole answer, with the other requests of it (the caller cancels them). Before the first byte it is a plain
  // HTTP error; later, an error event is the last of the stream. Also for an error of submit(): `so_far` is then {}.
  virtual Output on_error(std::size_t index, const Error& error, const Timings& so_far) = 0;

  // Status and type of the first bytes; they are settled when an Output first has bytes.
  virtual int status() const = 0;
  virtual std::string_view content_type() const = 0;  // "text/event-stream" or "application/json; charset=utf-8"
  // As Reply::retry_after_s, of an answer that is an HTTP error.
  virtual std::optional<std::uint32_t> retry_after_s() const = 0;
  virtual bool undone() const = 0;  // as Reply's, likewise
};

struct Generation {
  std::vector<Request> requests;  // at least one: prompts x choices
  std::unique_ptr<Answer> answer;
  bool stream = false;
  // While a stream has nothing to say, comment lines keep its connection; false: the client wants none.
  bool ping = true;
};

struct ReadGeneration {
  std::optional<Generation> generation;  // exactly one of the two is set
  std::optional<Reply> refusal;
};

// Reads the body of a generating route. Every field is honoured, or the refusal (400) names it.
//   body        any bytes
//   context     borrowed as long as the answer lives
//   request_id  as the header x-request-id tells the client
ReadGeneration read_generation(Route route, std::string_view body, const Context& context, std::string_view request_id);

}  // namespace terrace::serve::api
