// Answers of Anthropic's /v1/messages.
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/answer_segments.h"
#include "coordinator/serve/api/conversation.h"

namespace terrace::serve::api {
namespace {

class MessagesAnswer final : public SegmentAnswer {
 public:
  explicit MessagesAnswer(AnswerSetup setup) : SegmentAnswer(std::move(setup)), id_(random_id("msg_", 24, context())) {}

 private:
  std::string_view call_id_prefix() const override { return "toolu_"; }

  // Counts the tokens that were computed; those that were taken from the cache have a field of their own.
  static Json usage_of(std::uint32_t n_prompt, const Timings& timings) {
    return {{"input_tokens", n_prompt - timings.cache_n},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", timings.cache_n},
            {"output_tokens", timings.predicted_n}};
  }

  Json message(Json content, Json usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", context().model.name},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", std::move(usage)}};
  }

  static void add_reason(const Choice& choice, Json& object) {
    const bool full = choice.reason == EndReason::kLimit || choice.reason == EndReason::kContext;
    object["stop_reason"] = full                                ? "max_tokens"
                            : choice.reason == EndReason::kStop ? "stop_sequence"
                            : !choice.calls.empty()             ? "tool_use"
                                                                : "end_turn";
    object["stop_sequence"] = choice.reason == EndReason::kStop ? Json(choice.stopping_word) : Json();
  }

  // A block as it stands, or as it begins.
  static Json block(const Choice& choice, const Segment& segment, bool empty) {
    const std::string text = empty ? "" : segment.text;
    if (segment.kind == Delta::Kind::kContent) return {{"type", "text"}, {"text", text}};
    // There is no signature: nobody but this server reads the block again, and it asks for none.
    if (segment.kind == Delta::Kind::kReasoning) return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
    const ToolCall& call = choice.calls[segment.call];
    Json input = empty ? Json::object() : arguments_value(call.arguments);
    if (!input.is_object()) input = {{"incomplete_json", call.arguments}};  // the model was cut off in its midst
    return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}};
  }

  std::string answer_begins(const Timings& so_far) override {
    Timings timings = so_far;
    timings.predicted_n = 0;
    return event("message_start", {{"type", "message_start"},
                                   {"message", message(Json::array(), usage_of(choices()[0].n_prompt, timings))}});
  }
  std::string segment_begins(const Choice& choice, std::size_t index) override {
    return event("content_block_start", {{"type", "content_block_start"},
                                         {"index", index},
                                         {"content_block", block(choice, choice.segments[index], true)}});
  }
  std::string segment_grows(const Choice& choice, std::size_t index, std::string_view text) override {
    constexpr std::string_view kOpen = EventTemplate::kOpen;
    const Delta::Kind kind = choice.segments[index].kind;
    EventTemplate& form = growth(choice.segments[index]);
    if (form.empty()) {
      const Json delta = kind == Delta::Kind::kContent ? Json{{"type", "text_delta"}, {"text", kOpen}}
                         : kind == Delta::Kind::kReasoning
                             ? Json{{"type", "thinking_delta"}, {"thinking", kOpen}}
                             : Json{{"type", "input_json_delta"}, {"partial_json", kOpen}};
      form = EventTemplate(
          event("content_block_delta", {{"type", "content_block_delta"}, {"index", kOpen}, {"delta", delta}}), 2);
    }
    std::string bytes;
    form.append_to(bytes, index, text);
    return bytes;
  }
  std::string segment_ends(const Choice&, std::size_t index) override {
    return event("content_block_stop", {{"type", "content_block_stop"}, {"index", index}});
  }
  std::string answer_ends(const Choice& choice) override {
    Json delta = Json::object();
    add_reason(choice, delta);
    return event("message_delta", {{"type", "message_delta"},
                                   {"delta", std::move(delta)},
                                   {"usage", usage_of(choice.n_prompt, choice.timings)}}) +
           event("message_stop", {{"type", "message_stop"}});
  }
  std::string error_event(const Reply& reply) override { return "event: error\ndata: " + reply.body + "\n\n"; }

  Json whole() override {
    const Choice& choice = choices()[0];
    Json content = Json::array();
    for (const Segment& segment : choice.segments) content.push_back(block(choice, segment, false));
    Json object = message(std::move(content), usage_of(choice.n_prompt, choice.timings));
    add_reason(choice, object);
    return object;
  }

  std::string id_;
};

}  // namespace

std::unique_ptr<Answer> make_messages_answer(AnswerSetup setup) {
  return std::make_unique<MessagesAnswer>(std::move(setup));
}

}  // namespace terrace::serve::api
