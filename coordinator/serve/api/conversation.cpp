#include "coordinator/serve/api/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace terrace::serve::api {
namespace {

Error at(std::string_view what, std::size_t index, const Error& error) {
  return Error(error.code(), fmt::format("{} {}: {}", what, index, error.text()));
}

template <class Add>
Status for_each(const Json& items, std::string_view what, const Add& add) {
  for (std::size_t i = 0; i < items.size(); ++i)
    if (const Status status = add(items[i]); !status.ok()) return at(what, i, status.error());
  return {};
}

Status read_tools(const Ask& ask, Json& tools) {
  std::set<std::string> names;
  return for_each(*ask.tools, "item", [&](const Json& tool) -> Status {
    TERRACE_ASSIGN_OR_RETURN(Json entry, ask.route == kOnResponses                           ? responses_tool(tool)
                                         : (ask.route & (kOnMessages | kOnCountTokens)) != 0 ? anthropic_tool(tool)
                                                                                             : openai_tool(tool));
    const auto name = entry["function"]["name"].get<std::string>();
    if (!names.insert(name).second)
      return Error(ErrorCode::kInvalidArgument, fmt::format("the name \"{}\" stands twice", name));
    tools.push_back(std::move(entry));
    return {};
  });
}

void add_system(std::string text, Json& messages) {
  messages.push_back({{"role", "system"}, {"content", std::move(text)}});
}

std::optional<HttpError> read_anthropic(const Ask& ask, Json& messages) {
  if (ask.messages->empty()) return bad_field("messages", "at least one message is required");
  if (ask.system != nullptr) {
    auto text = text_of(*ask.system, {"text"});
    if (!text.ok()) return bad_field("system", text.error());
    add_system(std::move(*text), messages);
  }
  const Status status =
      for_each(*ask.messages, "item", [&](const Json& message) { return add_anthropic_message(message, messages); });
  return status.ok() ? std::nullopt : std::optional(bad_field("messages", status.error()));
}

std::optional<HttpError> read_responses(const Ask& ask, Json& messages) {
  if (ask.input == nullptr) return bad_field("input", "is required");
  if (ask.instructions != nullptr) add_system(ask.instructions->get<std::string>(), messages);
  if (ask.input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *ask.input}});
    return std::nullopt;
  }
  if (!ask.input->is_array()) return bad_field("input", must_be("a string or an array of items", *ask.input));
  const Status status =
      for_each(*ask.input, "item", [&](const Json& item) { return add_responses_item(item, messages); });
  return status.ok() ? std::nullopt : std::optional(bad_field("input", status.error()));
}

std::optional<HttpError> read_openai(const Ask& ask, Json& messages) {
  const Status status =
      for_each(*ask.messages, "item", [&](const Json& message) { return add_openai_message(message, messages); });
  return status.ok() ? std::nullopt : std::optional(bad_field("messages", status.error()));
}

}  // namespace

std::optional<HttpError> read_conversation(const Ask& ask, Conversation& conversation) {
  conversation.messages = std::make_shared<Json>(Json::array());
  conversation.tools = std::make_shared<Json>(Json::array());
  if (ask.tools != nullptr)
    if (const Status status = read_tools(ask, *conversation.tools); !status.ok())
      return bad_field("tools", status.error());
  if (ask.route == kOnResponses) return read_responses(ask, *conversation.messages);
  if (ask.messages == nullptr) return bad_field("messages", "is required");
  return (ask.route & (kOnMessages | kOnCountTokens)) != 0 ? read_anthropic(ask, *conversation.messages)
                                                           : read_openai(ask, *conversation.messages);
}

Result<std::string> text_of(const Json& content, std::initializer_list<std::string_view> text_types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return must_be("a string or an array of parts", content);
  std::string text;
  for (const Json& part : content) {
    TERRACE_ASSIGN_OR_RETURN(const std::string type, required_string(part, "type"));
    if (std::ranges::count(text_types, std::string_view(type)) == 0)
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("a part of type {} is not supported here: the model reads text only", shown(part["type"])));
    TERRACE_RETURN_IF_ERROR(
        check_keys(part, {"type", "text", "annotations", "logprobs", "citations", "cache_control"}));
    TERRACE_ASSIGN_OR_RETURN(const std::string piece, required_string(part, "text"));
    if (!text.empty()) text += '\n';
    text += piece;
  }
  return text;
}

Result<std::string> required_string(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr)
    return Error(ErrorCode::kInvalidArgument, fmt::format("must be an object with {}; found {}", key, shown(object)));
  if (!value->is_string()) return must_be("a string", *value).in(key);
  return value->get<std::string>();
}

Json arguments_value(const std::string& text) {
  if (text.empty()) return Json::object();
  const ParsedBody parsed = parse_body(text);
  return parsed.object != nullptr ? *parsed.object : Json(text);
}

Json call_entry(std::string_view id, std::string_view name, Json arguments) {
  return {{"id", id}, {"type", "function"}, {"function", Json{{"name", name}, {"arguments", std::move(arguments)}}}};
}

Result<Json> function_tool(const Json& object, const Json* schema) {
  constexpr std::size_t kMaxName = 256;
  TERRACE_ASSIGN_OR_RETURN(const std::string name, required_string(object, "name"));
  if (name.empty() || name.size() > kMaxName)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("name must have 1 to {} bytes; found {}", kMaxName, name.size()));
  if (schema != nullptr && !schema->is_object()) return must_be("a JSON schema: an object", *schema).in("parameters");
  Json function{{"name", name}};
  if (find(object, "description") != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(function["description"], required_string(object, "description"));
  }
  function["parameters"] = schema != nullptr ? *schema : Json{{"type", "object"}, {"properties", Json::object()}};
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace terrace::serve::api
