// The families of reply marks, one line each, and which of them a chat template belongs to.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "coordinator/serve/tool_calls/reply_parser.h"

namespace terrace::serve::tool_calls {

struct Family {
  std::string_view name;  // "hermes"
  std::unique_ptr<ReplyParser> (*make)(const ParserOptions& options);
  // The marks, for prompts that must end within a call or after thought.
  std::string_view think, think_end, call, call_end;
  // For templates that do not know tools: writes the tools, and what was called and answered so far, into the messages
  // themselves. Null: the family needs a template that does. Messages and tools as OpenAI's chat has them, arguments as
  // objects; `tools` may be empty.
  void (*tell_tools)(nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);
};

// The family in whose manner `template_source` (Jinja, as the model file carries it) writes tool calls, or in whose
// manner a model with such turns is asked for them; null: there is none, or none that a parser here reads.
const Family* find_family(std::string_view template_source);

// For replies of templates without a family: reasoning is split off where asked, calls are never found.
const Family& plain_family();

}  // namespace terrace::serve::tool_calls
