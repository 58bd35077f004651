// The families of reply marks, one line each, and which of them a chat template belongs to.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "coordinator/serve/tool_calls/reply_parser.h"

namespace terrace::serve::tool_calls {

struct Family {
  std::string_view name;  // "hermes"
  std::unique_ptr<ReplyParser> (*make)(const ParserOptions& options);
  // The marks, for prompts that must end within a call or after thought.
  std::string_view think, think_end, call, call_end;
};

// The family in whose manner `template_source` (Jinja, as the model file carries it) writes tool calls; null: it writes
// none, or in a manner that no parser here reads.
const Family* find_family(std::string_view template_source);

// For replies of templates without a family: reasoning is split off where asked, calls are never found.
const Family& plain_family();

}  // namespace terrace::serve::tool_calls
