// A conversation as the text that a model was trained to go on from.
//
// Family   ChatML: "<|im_start|>ROLE\nCONTENT<|im_end|>\n" for each message. A file's template (key
//          tokenizer.chat_template) is a program in Jinja; it is not run here, but told by its marks to be of this
//          family.
// Threads  Immutable once made.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/text/tokenizer.h"

namespace terrace::text {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// What Tokenizer::encode() takes, with parse_special: marks are found in the text but for what somebody said.
struct ChatText {
  std::string text;
  std::vector<TextRange> plain;  // the contents, rising
};

class ChatTemplate {
 public:
  // kUnsupported: the source is empty, or of another family; the sentence says what works.
  static Result<ChatTemplate> make(std::string_view source);

  // Whether the source only marks turns. If not (a default system text, <think> blocks), render() leaves that part out.
  bool is_plain() const { return plain_; }

  // add_generation_prompt: the text ends where the assistant's next message begins.
  ChatText render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

 private:
  explicit ChatTemplate(bool plain) : plain_(plain) {}
  bool plain_;
};

}  // namespace terrace::text
