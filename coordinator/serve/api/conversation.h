// A conversation as chat templates read it, whatever API it came by: OpenAI's chat, Anthropic's messages, Responses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/api/json_text.h"

namespace terrace::serve::api {

// messages  [{"role", "content": string, "reasoning_content"?, "tool_calls"?, "tool_call_id"?, "name"?}]
//           tool_calls: [{"id", "type": "function", "function": {"name", "arguments": object, or the string it was}}]
// tools     [{"type": "function", "function": {"name", "description"?, "parameters": a schema}}]
struct Conversation {
  std::shared_ptr<Json> messages;
  std::shared_ptr<Json> tools;
};

// By Ask::route. The error names messages, input, system or tools, and the place within.
std::optional<HttpError> read_conversation(const Ask& ask, Conversation& conversation);

// The parts, each in a file of its own. Errors name the place within the field.
Status add_openai_message(const Json& message, Json& messages);
Status add_anthropic_message(const Json& message, Json& messages);
Status add_responses_item(const Json& item, Json& messages);
Result<Json> openai_tool(const Json& tool);
Result<Json> anthropic_tool(const Json& tool);
Result<Json> responses_tool(const Json& tool);

// What they share.
// A string, or an array of parts of the types in `text_types` ({"type": T, "text": S}), joined by line breaks as
// llama-server does; other types are refused by name, as the model reads text only.
Result<std::string> text_of(const Json& content, std::initializer_list<std::string_view> text_types);
// find() that must be there and a string.
Result<std::string> required_string(const Json& object, std::string_view key);
// Arguments as templates want them: an object where the text is one.
Json arguments_value(const std::string& text);
Json call_entry(std::string_view id, std::string_view name, Json arguments);
// {"type": "function", "function": ...} with a checked name and schema (null: takes nothing).
Result<Json> function_tool(const Json& object, const Json* schema);

}  // namespace terrace::serve::api
