// Messages and tools of /v1/chat/completions.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coordinator/serve/api/conversation.h"

namespace terrace::serve::api {
namespace {

Status add_calls(const Json& calls, Json& message) {
  if (!calls.is_array()) return must_be("an array", calls).in("tool_calls");
  Json entries = Json::array();
  for (const Json& call : calls) {
    TERRACE_RETURN_IF_ERROR(check_keys(call, {"id", "type", "function", "index"}));
    const Json* type = find(call, "type");
    if (type != nullptr && *type != Json("function")) return must_be("\"function\"", *type).in("tool_calls: type");
    const Json* function = find(call, "function");
    if (function == nullptr) return Error(ErrorCode::kInvalidArgument, "tool_calls: a call has no function");
    TERRACE_RETURN_IF_ERROR(check_keys(*function, {"name", "arguments"}));
    TERRACE_ASSIGN_OR_RETURN(const std::string name, required_string(*function, "name"));
    const Json* arguments = find(*function, "arguments");
    Json value = Json::object();
    if (arguments != nullptr && arguments->is_string()) {
      value = arguments_value(arguments->get<std::string>());
    } else if (arguments != nullptr && arguments->is_object()) {
      value = *arguments;  // not OpenAI's form, but what other servers of open models take
    } else if (arguments != nullptr) {
      return must_be("a string that holds JSON", *arguments).in("tool_calls: arguments");
    }
    const Json* id = find(call, "id");
    if (id != nullptr && !id->is_string()) return must_be("a string", *id).in("tool_calls: id");
    entries.push_back(call_entry(id == nullptr ? "" : id->get<std::string>(), name, std::move(value)));
  }
  if (!entries.empty()) message["tool_calls"] = std::move(entries);
  return {};
}

Result<std::string> role_of(const Json& message) {
  if (find(message, "role") == nullptr)
    return Error(ErrorCode::kInvalidArgument, fmt::format("must be an object with a role; found {}", shown(message)));
  auto role = read_choice(message["role"], {"system", "developer", "user", "assistant", "tool"});
  if (!role.ok()) return role.error().in("role");
  // The name that OpenAI gives to system messages of newer models; templates know the older one.
  return *role == "developer" ? Result<std::string>("system") : std::move(role);
}

// What answers carry and clients send back unchanged, without meaning here: only as null or empty.
Status check_empty(const Json& message, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Json* value = find(message, key);
    if (value != nullptr && !(value->is_array() && value->empty()))
      return Error(ErrorCode::kInvalidArgument, fmt::format("{} is not supported; found {}", key, shown(*value)));
  }
  return {};
}

Status copy_string(const Json& from, std::string_view key, Json& to, std::string_view as) {
  if (find(from, key) == nullptr) return {};
  TERRACE_ASSIGN_OR_RETURN(to[std::string(as)], required_string(from, key));
  return {};
}

}  // namespace

Status add_openai_message(const Json& message, Json& messages) {
  TERRACE_ASSIGN_OR_RETURN(const std::string role, role_of(message));
  TERRACE_RETURN_IF_ERROR(
      check_keys(message, {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning",
                           "refusal", "audio", "function_call", "annotations"}));
  TERRACE_RETURN_IF_ERROR(check_empty(message, {"refusal", "audio", "function_call", "annotations"}));
  Json entry{{"role", role}, {"content", ""}};
  const Json* content = find(message, "content");
  const Json* calls = find(message, "tool_calls");
  if (content != nullptr) {
    auto text = text_of(*content, {"text"});
    if (!text.ok()) return text.error().in("content");
    entry["content"] = std::move(*text);
  } else if (role != "assistant") {
    return Error(ErrorCode::kInvalidArgument, "must have a content");
  }
  if (role == "assistant") {
    TERRACE_RETURN_IF_ERROR(copy_string(message, "reasoning", entry, "reasoning_content"));
    TERRACE_RETURN_IF_ERROR(copy_string(message, "reasoning_content", entry, "reasoning_content"));
    if (calls != nullptr) TERRACE_RETURN_IF_ERROR(add_calls(*calls, entry));
  } else if (calls != nullptr) {
    return Error(ErrorCode::kInvalidArgument, "tool_calls stand only in messages of the assistant");
  }
  TERRACE_RETURN_IF_ERROR(copy_string(message, "tool_call_id", entry, "tool_call_id"));
  TERRACE_RETURN_IF_ERROR(copy_string(message, "name", entry, "name"));
  messages.push_back(std::move(entry));
  return {};
}

Result<Json> openai_tool(const Json& tool) {
  TERRACE_ASSIGN_OR_RETURN(const std::string type, required_string(tool, "type"));
  if (type != "function")
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("of type {} is not supported: functions only", shown(tool["type"])));
  TERRACE_RETURN_IF_ERROR(check_keys(tool, {"type", "function"}));
  const Json* function = find(tool, "function");
  if (function == nullptr) return Error(ErrorCode::kInvalidArgument, "has no function");
  TERRACE_RETURN_IF_ERROR(check_keys(*function, {"name", "description", "parameters", "strict"}));
  return function_tool(*function, find(*function, "parameters"));
}

}  // namespace terrace::serve::api
