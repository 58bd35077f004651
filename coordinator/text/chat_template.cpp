#include "coordinator/text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace terrace::text {
namespace {

using Json = nlohmann::ordered_json;

// The texts of the special tokens that the file names. An id beyond the list is Tokenizer::make()'s to refuse.
std::map<std::string, std::string> special_tokens(const Vocabulary& vocabulary) {
  std::map<std::string, std::string> tokens;
  for (const auto& [name, id] : {std::pair("bos_token", vocabulary.bos), std::pair("eos_token", vocabulary.eos),
                                 std::pair("unk_token", vocabulary.unk), std::pair("pad_token", vocabulary.pad)})
    if (id && *id < vocabulary.tokens.size()) tokens.emplace(name, vocabulary.tokens[*id]);
  return tokens;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::make(const Vocabulary& vocabulary) {
  if (vocabulary.chat_template.empty())
    return Error(ErrorCode::kUnsupported,
                 "the file has no chat template (key tokenizer.chat_template), so how it marks turns is not known; use "
                 "`terrace generate`");
  auto source = jinja::Template::compile(vocabulary.chat_template);
  if (!source.ok()) return source.error().in("the file's chat template (key tokenizer.chat_template)");
  return ChatTemplate(std::move(*source), special_tokens(vocabulary));
}

Result<ChatText> ChatTemplate::render(const Json& variables, const std::tm& now) const {
  Json all = variables;
  const auto otherwise = [&all](const std::string& name, Json value) {
    if (all.is_object() && !all.contains(name)) all[name] = std::move(value);
  };
  otherwise("tools", nullptr);
  otherwise("documents", nullptr);
  otherwise("add_generation_prompt", false);
  for (const auto& [name, text] : special_tokens_) otherwise(name, text);

  jinja::RenderOptions options;
  options.now = now;
  options.said = {"messages", "tools", "documents"};
  TERRACE_ASSIGN_OR_RETURN(jinja::Rendered rendered, template_.render(all, options));
  ChatText text{std::move(rendered.text), {}};
  for (const jinja::Range& range : rendered.said) text.plain.push_back({range.begin, range.end});
  return text;
}

Result<ChatText> ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                      const std::tm& now) const {
  Json said = Json::array();
  for (const ChatMessage& message : messages) said.push_back({{"role", message.role}, {"content", message.content}});
  return render({{"messages", std::move(said)}, {"add_generation_prompt", add_generation_prompt}}, now);
}

}  // namespace terrace::text
