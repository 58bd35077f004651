// A conversation as the text that a model was trained to go on from: the file's own template (key
// tokenizer.chat_template) rendered by coordinator/text/jinja.
//
// Contents   What somebody said cannot end a turn or begin one: the strings of `messages`, `tools` and `documents` keep
//            a mark through the template, and where their bytes stand in the text control tokens are not looked for.
//            This holds whatever the template does with them, cutting, trimming, replacing, tojson (the whole of such a
//            JSON text is marked). It does not hold for what a template decides by them: `if content == "x"` may print
//            a mark of its own, and numbers carry no mark. Tokens of type user-defined are found in any text.
// Threads    Immutable once made.
#pragma once

#include <ctime>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/text/jinja/template.h"
#include "coordinator/text/tokenizer.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::text {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// What Tokenizer::encode() takes, with parse_special: marks are found in the text but for what somebody said.
struct ChatText {
  std::string text;
  std::vector<TextRange> plain;  // rising
};

class ChatTemplate {
 public:
  // Of the vocabulary's chat_template and special tokens. kUnsupported: the file has none; the sentence says what works
  // instead. Else as jinja::Template::compile().
  static Result<ChatTemplate> make(const Vocabulary& vocabulary);

  // With the variables that transformers gives: bos_token, eos_token, unk_token, pad_token (as far as the file names
  // them), tools and documents None, add_generation_prompt false; `variables`, a JSON object, goes before these.
  // Errors as jinja::Template::render(): kRefused is what the template says about such a conversation.
  Result<ChatText> render(const nlohmann::ordered_json& variables, const std::tm& now) const;

  // add_generation_prompt: the text ends where the assistant's next message begins.
  Result<ChatText> render(std::span<const ChatMessage> messages, bool add_generation_prompt, const std::tm& now) const;

  const jinja::Template& source() const { return template_; }

 private:
  ChatTemplate(jinja::Template source, std::map<std::string, std::string> tokens)
      : template_(std::move(source)), special_tokens_(std::move(tokens)) {}
  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;  // "bos_token" -> its text
};

}  // namespace terrace::text
