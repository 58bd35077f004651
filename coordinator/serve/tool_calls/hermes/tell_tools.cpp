#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/serve/tool_calls/hermes/hermes.h"

namespace terrace::serve::tool_calls {
namespace {

using Json = nlohmann::ordered_json;

std::string written(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string text_of_tools(const Json& tools) {
  std::string text = "You may call these functions, given as JSON:\n<tools>\n";
  for (const Json& tool : tools) text += written(tool) + "\n";
  text +=
      "</tools>\n\nTo call one, answer with its name and its arguments:\n<tool_call>\n{\"name\": \"NAME\", "
      "\"arguments\": "
      "{...}}\n</tool_call>";
  return text;
}

void add_to_system(const std::string& text, Json& messages) {
  if (!messages.empty() && messages.front()["role"] == Json("system")) {
    std::string content = messages.front()["content"].get<std::string>();
    messages.front()["content"] = content.empty() ? text : content + "\n\n" + text;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
}

void write_calls(Json& message) {
  std::string content = message["content"].get<std::string>();
  for (const Json& call : message["tool_calls"])
    content += (content.empty() ? "" : "\n") + ("<tool_call>\n" + written(call["function"]) + "\n</tool_call>");
  message["content"] = std::move(content);
  message.erase("tool_calls");
}

}  // namespace

void tell_hermes_tools(Json& messages, const Json& tools) {
  Json told = Json::array();
  bool in_answers = false;
  for (Json& message : messages) {
    const bool is_answer = message["role"] == Json("tool");
    if (message.contains("tool_calls")) write_calls(message);
    if (is_answer) {
      const std::string text = "<tool_response>\n" + message["content"].get<std::string>() + "\n</tool_response>";
      if (in_answers) {
        told.back()["content"] = told.back()["content"].get<std::string>() + "\n" + text;
      } else {
        told.push_back({{"role", "user"}, {"content", text}});
      }
    } else {
      told.push_back(std::move(message));
    }
    in_answers = is_answer;
  }
  messages = std::move(told);
  if (!tools.empty()) add_to_system(text_of_tools(tools), messages);
}

}  // namespace terrace::serve::tool_calls
