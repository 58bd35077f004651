// Replies of models with ChatML templates in the manner of Hermes (Qwen 2.5 and 3 among them).
//
//   reply      [reasoning] content { call }
//   reasoning  "<think>" text "</think>", only at the very beginning
//   call       "<tool_call>" {"name": "...", "arguments": {...}} "</tool_call>", anywhere after it
//
// White space is left out around reasoning, between a content and the call that follows, and after a call. Arguments
// are streamed as they are written; where they are a string that holds JSON, its content is given once it is complete.
// A call that breaks JSON before its name and arguments have begun is content as it was written; one that breaks later
// keeps the arguments it has, and what follows up to its end mark is left out.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "coordinator/serve/tool_calls/reply_parser.h"

namespace terrace::serve::tool_calls {

std::unique_ptr<ReplyParser> make_hermes_parser(const ParserOptions& options);

// Family::tell_tools. Tools go into the system message, which is made where there is none; calls into the content of
// their message; answers of tools are messages of the user within <tool_response>, neighbours joined.
void tell_hermes_tools(nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);

}  // namespace terrace::serve::tool_calls
