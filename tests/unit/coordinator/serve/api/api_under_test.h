// A server without an engine: a small vocabulary, a ChatML template with tools, and a scheduler that plays a script.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/api/context.h"
#include "coordinator/serve/api/generation.h"
#include "coordinator/text/jinja/template.h"
#include "coordinator/text/tokenizer.h"

namespace terrace::serve::api::test {

using Json = nlohmann::ordered_json;

// Ids 0 to 255 are the bytes, then <|im_start|>, <|im_end|> (control; the latter ends a reply), <think>, </think>,
// <tool_call>, </tool_call> (user-defined), then fillers up to 32,000.
inline constexpr std::int32_t kEndToken = 257;
text::Tokenizer make_tokenizer();

// ChatML; reads tools, enable_thinking and reasoning_effort.
extern const char* const kTemplate;

struct Server {
  Server();
  Context context;

 private:
  text::Tokenizer tokenizer_;
  text::jinja::Template template_;
};

// What the scheduler would do: pieces of text with one token each (the first byte's), then an end.
struct Script {
  std::vector<std::string> pieces = {"Hello", " world"};
  EndReason reason = EndReason::kLimit;
  std::string stopping_word = {};
  std::size_t fail_after = ~std::size_t{0};     // pieces; then on_error()
  std::size_t restart_after = ~std::size_t{0};  // pieces; then on_restart(), and all of them again
};

struct Played {
  int status = 200;
  std::string content_type;
  std::string bytes;
  bool finished = false;
  std::vector<std::string> parts;  // each Output's bytes, those without left out
  std::size_t n_cancelled = 0;     // requests that the answer asked to cancel
};

// Reads and plays; a refusal is a Played too.
Played play(Route route, const std::string& body, const Server& server, const Script& script = {});
inline Played play(Route route, const Json& body, const Server& server, const Script& script = {}) {
  return play(route, body.dump(), server, script);
}

// The JSON of each event of a stream; "[DONE]" as a string; events with a name as {"event", "data"}.
std::vector<Json> events_of(const std::string& stream);

}  // namespace terrace::serve::api::test
