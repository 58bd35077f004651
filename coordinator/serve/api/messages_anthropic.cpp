// Messages and tools of /v1/messages.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coordinator/serve/api/conversation.h"

namespace terrace::serve::api {
namespace {

// What the blocks of one message come to: its text, reasoning and calls; results of tools are messages of their own
// before it.
struct Blocks {
  std::string text;
  std::string reasoning;
  Json calls = Json::array();
  bool said = false;  // something beside results of tools
};

std::string name_of_call(const Json& messages, const std::string& id) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message)
    if (const Json* calls = find(*message, "tool_calls"))
      for (const Json& call : *calls)
        if (call["id"] == Json(id)) return call["function"]["name"].get<std::string>();
  return "";
}

Status add_result(const Json& block, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(block, {"type", "tool_use_id", "content", "is_error", "cache_control"}));
  TERRACE_ASSIGN_OR_RETURN(const std::string id, required_string(block, "tool_use_id"));
  std::string text;
  if (const Json* content = find(block, "content")) {
    TERRACE_ASSIGN_OR_RETURN(text, text_of(*content, {"text"}));
  }
  if (const Json* failed = find(block, "is_error")) {
    TERRACE_ASSIGN_OR_RETURN(const bool is_error, read_bool(*failed));
    if (is_error) text = "Error: " + text;  // templates have no other word for it
  }
  Json entry{{"role", "tool"}, {"content", std::move(text)}, {"tool_call_id", id}};
  if (std::string name = name_of_call(messages, id); !name.empty()) entry["name"] = std::move(name);
  messages.push_back(std::move(entry));
  return {};
}

Status add_block(const Json& block, bool assistant, Blocks& blocks, Json& messages) {
  TERRACE_ASSIGN_OR_RETURN(const std::string type, required_string(block, "type"));
  if (type == "text") {
    TERRACE_ASSIGN_OR_RETURN(const std::string text, text_of(Json::array({block}), {"text"}));
    blocks.text += (blocks.text.empty() ? "" : "\n") + text;
  } else if (type == "thinking" && assistant) {
    TERRACE_RETURN_IF_ERROR(check_keys(block, {"type", "thinking", "signature"}));
    TERRACE_ASSIGN_OR_RETURN(const std::string thought, required_string(block, "thinking"));
    blocks.reasoning += thought;
  } else if (type == "tool_use" && assistant) {
    TERRACE_RETURN_IF_ERROR(check_keys(block, {"type", "id", "name", "input", "cache_control", "caller"}));
    TERRACE_ASSIGN_OR_RETURN(const std::string id, required_string(block, "id"));
    TERRACE_ASSIGN_OR_RETURN(const std::string name, required_string(block, "name"));
    const Json* input = find(block, "input");
    if (input != nullptr && !input->is_object()) return must_be("an object", *input).in("input");
    blocks.calls.push_back(call_entry(id, name, input == nullptr ? Json::object() : *input));
  } else if (type == "tool_result" && !assistant) {
    return add_result(block, messages);
  } else {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a block of type {} is not supported here: the model reads text only", shown(block["type"])));
  }
  blocks.said = true;
  return {};
}

}  // namespace

Status add_anthropic_message(const Json& message, Json& messages) {
  TERRACE_RETURN_IF_ERROR(check_keys(message, {"role", "content"}));
  TERRACE_ASSIGN_OR_RETURN(const std::string given, required_string(message, "role"));
  auto role = read_choice(message["role"], {"user", "assistant", "system"});
  if (!role.ok()) return role.error().in("role");
  const Json* content = find(message, "content");
  if (content == nullptr) return Error(ErrorCode::kInvalidArgument, "must have a content");
  if (content->is_string()) {
    messages.push_back({{"role", *role}, {"content", *content}});
    return {};
  }
  if (!content->is_array()) return must_be("a string or an array of blocks", *content).in("content");
  Blocks blocks;
  for (const Json& block : *content) TERRACE_RETURN_IF_ERROR(add_block(block, *role == "assistant", blocks, messages));
  if (!blocks.said) return {};
  Json entry{{"role", *role}, {"content", std::move(blocks.text)}};
  if (!blocks.reasoning.empty()) entry["reasoning_content"] = std::move(blocks.reasoning);
  if (!blocks.calls.empty()) entry["tool_calls"] = std::move(blocks.calls);
  messages.push_back(std::move(entry));
  return {};
}

Result<Json> anthropic_tool(const Json& tool) {
  const Json* type = find(tool, "type");
  if (type != nullptr && *type != Json("custom"))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("of type {} is not supported: this server runs no tools of its own", shown(*type)));
  TERRACE_RETURN_IF_ERROR(check_keys(tool, {"type", "name", "description", "input_schema", "cache_control", "strict"}));
  return function_tool(tool, find(tool, "input_schema"));
}

}  // namespace terrace::serve::api
