// A conversation on one stream of the trunk. Each turn computes only what the stream does not hold yet: the end of the
// reply before, the new message, and where the next reply begins. A template may write earlier turns anew (without
// their reasoning, say): then what follows the first token that differs is computed again.
//
// What was shown is what is in the conversation: a reply that was interrupted goes on as far as it was shown, and its
// last token, shown but not computed, is computed with the next turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/generation.h"
#include "coordinator/app/open_stream.h"
#include "coordinator/sampler/sampler.h"
#include "coordinator/text/chat_template.h"

namespace terrace::app {

struct ConversationOptions {
  std::string system;                     // the first message; empty: none
  std::uint64_t max_tokens = UINT64_MAX;  // of a reply
  std::uint32_t batch = 512;              // rows of one step
  sampler::SamplingOptions sampling;
};

// One owner thread, the engine's.
class Conversation {
 public:
  // Messages to text, true: up to where the assistant's reply begins.
  using Render = std::function<Result<text::ChatText>(std::span<const text::ChatMessage>, bool)>;

  // `engine` is borrowed. kBusy: the trunk has no stream.
  static Result<Conversation> begin(Engine& engine, Render render, ConversationOptions options);

  struct Reply {
    StopReason stop_reason = StopReason::kEos;
    std::uint64_t computed = 0;  // tokens before the reply that were not in the stream
    std::uint64_t tokens = 0;    // of the reply
    double prompt_ms = 0;
    double decode_ms = 0;
  };
  // Says `message`, and gives the reply to on_text as it is made: whole characters. `interrupted` is asked between
  // steps. kContextFull: the message does not fit; the conversation is as it was before, as it is when the template
  // cannot write it. Any other error (of a leg, of on_text) ends the conversation.
  Result<Reply> say(const std::string& message, const std::function<bool()>& interrupted,
                    FunctionRef<Status(std::string_view)> on_text);

  // Forgets all that was said; the system message stays.
  Status clear();

  const std::vector<text::ChatMessage>& messages() const { return messages_; }
  // Of all that was said and shown.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  Conversation(Engine& engine, Render render, ConversationOptions options);
  Status open_stream();
  Status keep_positions(std::size_t n);
  Result<std::vector<std::int32_t>> encode(const text::ChatText& said, std::size_t from) const;

  Engine* engine_;
  Render render_;
  ConversationOptions options_;
  std::optional<OpenStream> stream_;
  std::vector<text::ChatMessage> messages_;
  std::string text_;                   // what the tokens say, up to the end of the last reply
  std::vector<std::int32_t> tokens_;   // the stream holds the first stream_->length() of them
  std::uint64_t seen_until_step_ = 0;  // the last step of the trunk that made one of them
};

}  // namespace terrace::app
