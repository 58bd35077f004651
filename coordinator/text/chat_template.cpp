#include "coordinator/text/chat_template.h"

namespace terrace::text {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kMiddle = "<|im_middle|>";  // Kimi-K2 has it between role and content

bool is_chat_ml(std::string_view source) {
  const auto has = [source](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  return has(kBegin) && has(kEnd) && !has(kMiddle);
}

// Templates write a default system text as a literal that addresses the model, and reasoning between these marks.
bool does_more(std::string_view source) {
  return source.find("<think>") != std::string_view::npos || source.find("You are") != std::string_view::npos;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::make(std::string_view source) {
  if (source.empty())
    return Error(ErrorCode::kUnsupported,
                 "the file has no chat template (key tokenizer.chat_template), so how it marks turns is not known; use "
                 "`terrace generate`");
  if (!is_chat_ml(source))
    return Error(
        ErrorCode::kUnsupported,
        "the file's chat template (key tokenizer.chat_template) is not of the ChatML family, the only one that "
        "this build writes: it lacks the marks <|im_start|> and <|im_end|> or has others between them; use "
        "`terrace generate` with the marks of this model in the prompt");
  return ChatTemplate(!does_more(source));
}

ChatText ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  ChatText out;
  for (const ChatMessage& message : messages) {
    out.text.append(kBegin).append(message.role).append("\n");
    const std::size_t begin = out.text.size();
    out.text.append(message.content);
    out.plain.push_back({begin, out.text.size()});
    out.text.append(kEnd).append("\n");
  }
  if (add_generation_prompt) out.text.append(kBegin).append("assistant\n");
  return out;
}

}  // namespace terrace::text
