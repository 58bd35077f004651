// Input items and tools of /v1/responses.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coordinator/serve/api/conversation.h"

namespace terrace::serve::api {
namespace {

// The message of the assistant that a further item of its turn joins: a thought, its calls.
Json& assistant_turn(Json& messages) {
  const bool open = !messages.empty() && messages.back()["role"] == Json("assistant");
  if (!open) messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

Status add_message(const Json& item, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(item, {"type", "role", "content", "id", "status", "phase"}));
  const Json* given = find(item, "role");
  if (given == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a role");
  auto role = read_choice(*given, {"system", "developer", "user", "assistant"});
  if (!role.ok()) return role.error().in("role");
  const Json* content = find(item, "content");
  if (content == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a content");
  auto text = text_of(*content, {"input_text", "output_text", "text"});
  if (!text.ok()) return text.error().in("content");
  if (*role == "assistant" && !messages.empty() && messages.back()["role"] == Json("assistant") &&
      messages.back()["content"] == Json("") && !messages.back().contains("tool_calls")) {
    messages.back()["content"] = std::move(*text);  // the thought before it is of the same turn
    return {};
  }
  messages.push_back({{"role", *role == "developer" ? "system" : *role}, {"content", std::move(*text)}});
  return {};
}

Status add_call(const Json& item, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(item, {"type", "id", "call_id", "name", "arguments", "status"}));
  TERRACE_ASSIGN_OR_RETURN(const std::string id, required_string(item, "call_id"));
  TERRACE_ASSIGN_OR_RETURN(const std::string name, required_string(item, "name"));
  TERRACE_ASSIGN_OR_RETURN(const std::string arguments, required_string(item, "arguments"));
  Json& turn = assistant_turn(messages);
  if (!turn.contains("tool_calls")) turn["tool_calls"] = Json::array();
  turn["tool_calls"].push_back(call_entry(id, name, arguments_value(arguments)));
  return {};
}

Status add_output(const Json& item, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(item, {"type", "id", "call_id", "output", "status"}));
  TERRACE_ASSIGN_OR_RETURN(const std::string id, required_string(item, "call_id"));
  const Json* output = find(item, "output");
  if (output == nullptr) return Error(ErrorCode::kInvalidArgument, "must have an output");
  auto text = text_of(*output, {"input_text", "output_text", "text"});
  if (!text.ok()) return text.error().in("output");
  messages.push_back({{"role", "tool"}, {"content", std::move(*text)}, {"tool_call_id", id}});
  return {};
}

Status add_reasoning(const Json& item, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(item, {"type", "id", "summary", "content", "encrypted_content", "status"}));
  if (find(item, "encrypted_content") != nullptr)
    return Error(ErrorCode::kInvalidArgument, "encrypted_content is not supported: send the reasoning's content");
  const Json* content = find(item, "content");
  if (content == nullptr) return {};
  auto text = text_of(*content, {"reasoning_text", "text"});
  if (!text.ok()) return text.error().in("content");
  assistant_turn(messages)["reasoning_content"] = std::move(*text);
  return {};
}

}  // namespace

Status add_responses_item(const Json& item, Json& messages) {
  if (!item.is_object()) return must_be("an object", item);
  const Json* type = find(item, "type");
  if (type == nullptr || *type == Json("message")) return add_message(item, messages);
  if (*type == Json("function_call")) return add_call(item, messages);
  if (*type == Json("function_call_output")) return add_output(item, messages);
  if (*type == Json("reasoning")) return add_reasoning(item, messages);
  return Error(ErrorCode::kInvalidArgument, fmt::format("of type {} is not supported", shown(*type)));
}

Result<Json> responses_tool(const Json& tool) {
  TERRACE_ASSIGN_OR_RETURN(const std::string type, required_string(tool, "type"));
  if (type != "function")
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("of type {} is not supported: this server runs no tools of its own", shown(tool["type"])));
  TERRACE_RETURN_IF_ERROR(check_keys(tool, {"type", "name", "description", "parameters", "strict"}));
  return function_tool(tool, find(tool, "parameters"));
}

}  // namespace terrace::serve::api
