// Answers of /v1/chat/completions and /v1/completions.
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/answer_base.h"
#include "coordinator/serve/api/event_template.h"

namespace terrace::serve::api {
namespace {

// What both have: chunks and the whole answer are an envelope around choices.
class OpenAiAnswer : public AnswerBase {
 protected:
  OpenAiAnswer(AnswerSetup setup, std::string_view object, std::string_view chunk_object)
      : AnswerBase(std::move(setup)),
        object_(object),
        chunk_object_(chunk_object),
        id_(random_id("chatcmpl-", 32, context())) {}

  Json envelope(Json choices, bool chunk) const {
    return {{"choices", std::move(choices)},
            {"created", created()},
            {"id", id_},
            {"model", context().model.name},
            {"system_fingerprint", context().build},
            {"object", chunk ? chunk_object_ : object_}};
  }
  Json chunk(Json choice) const { return envelope(Json::array({std::move(choice)}), true); }

  Json whole() override {
    Json list = Json::array();
    for (Choice& choice : choices()) list.push_back(whole_choice(choice));
    Json object = envelope(std::move(list), false);
    object["usage"] = usage_json(usage());
    object["timings"] = timings_json(choices().back().timings);
    add_seed(object);
    return object;
  }
  virtual Json whole_choice(Choice& choice) = 0;

 private:
  std::string object_, chunk_object_, id_;
};

Json call_json(const ToolCall& call) {
  return {
      {"id", call.id}, {"type", "function"}, {"function", Json{{"name", call.name}, {"arguments", call.arguments}}}};
}

class ChatAnswer final : public OpenAiAnswer {
 public:
  explicit ChatAnswer(AnswerSetup setup) : OpenAiAnswer(std::move(setup), "chat.completion", "chat.completion.chunk") {}

 private:
  Json delta_chunk(Json index, Json delta, Json reason = nullptr) const {
    return chunk({{"finish_reason", std::move(reason)}, {"index", std::move(index)}, {"delta", std::move(delta)}});
  }
  Json delta_chunk(const Choice& choice, Json delta, Json reason = nullptr) const {
    return delta_chunk(Json(choice.index), std::move(delta), std::move(reason));
  }

  // The role, once, before anything else of a choice.
  std::string begin(Choice& choice) const {
    if (std::exchange(choice.begun, true)) return {};
    return event(delta_chunk(choice, {{"role", "assistant"}, {"content", nullptr}}));
  }

  std::string progress_event(Choice& choice, const PromptProgress& progress) override {
    Json told = delta_chunk(choice, Json::object());
    told["prompt_progress"] = {{"total", progress.total},
                               {"cache", progress.cached},
                               {"processed", progress.processed},
                               {"time_ms", static_cast<std::int64_t>(progress.ms)}};
    return begin(choice) + event(told);
  }

  Json delta_json(const Choice& choice, const Delta& delta) const {
    switch (delta.kind) {
      case Delta::Kind::kContent:
        return {{"content", delta.text}};
      case Delta::Kind::kReasoning:
        return {{"reasoning_content", delta.text}};
      case Delta::Kind::kCall: {
        // The name and the id come whole and first: clients join what follows.
        Json call = call_json({choice.calls[delta.call].id, delta.text, {}});
        call["index"] = delta.call;
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case Delta::Kind::kArguments:
        break;
    }
    return {{"tool_calls", Json::array({Json{{"index", delta.call}, {"function", Json{{"arguments", delta.text}}}}})}};
  }

  // What most tokens are: a piece of text and nothing more.
  void append_text(std::string& bytes, const Choice& choice, const Delta& delta) {
    const bool is_content = delta.kind == Delta::Kind::kContent;
    EventTemplate& form = is_content ? content_ : reasoning_;
    if (form.empty()) {
      Json text{{is_content ? "content" : "reasoning_content", EventTemplate::kOpen}};
      form = EventTemplate(event(delta_chunk(Json(EventTemplate::kOpen), std::move(text))), 2);
    }
    form.append_to(bytes, choice.index, delta.text);
  }

  std::string delta_events(Choice& choice, const std::vector<Delta>& deltas, const Timings* so_far) {
    std::string bytes;
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      const bool is_last = i + 1 == deltas.size();
      const bool has_more = is_last && (ask().logprobs || (so_far != nullptr && ask().timings_per_token));
      const bool is_text = deltas[i].kind == Delta::Kind::kContent || deltas[i].kind == Delta::Kind::kReasoning;
      if (is_text && !has_more) {
        append_text(bytes, choice, deltas[i]);
        continue;
      }
      Json told = delta_chunk(choice, delta_json(choice, deltas[i]));
      if (is_last) {
        add_probabilities(choice, told);
        if (so_far != nullptr && ask().timings_per_token) told["timings"] = timings_json(*so_far);
      }
      bytes += event(told);
    }
    return bytes;
  }

  void add_probabilities(Choice& choice, Json& told) {
    if (ask().logprobs && !choice.told.empty())
      told["choices"][0]["logprobs"] = Json{{"content", take_probabilities(choice)}};
  }

  std::string piece_events(Choice& choice, std::string_view, const std::vector<Delta>& deltas,
                           const Timings& so_far) override {
    return deltas.empty() ? std::string() : begin(choice) + delta_events(choice, deltas, &so_far);
  }

  std::string end_events(Choice& choice, const std::vector<Delta>& deltas) override {
    std::string bytes = begin(choice) + delta_events(choice, deltas, nullptr);
    Json last = delta_chunk(choice, Json::object(), finish_reason(choice.reason, !choice.calls.empty()));
    add_probabilities(choice, last);
    if (!ask().include_usage) last["timings"] = timings_json(choice.timings);
    add_seed(last);
    return bytes + event(last);
  }

  std::string last_events() override {
    if (!ask().include_usage) return std::string(kDone);
    Json told = envelope(Json::array(), true);
    told["usage"] = usage_json(usage());
    told["timings"] = timings_json(choices().back().timings);
    return event(told).append(kDone);
  }

  Json whole_choice(Choice& choice) override {
    const std::string content = joined(choice.segments, Delta::Kind::kContent);
    const std::string reasoning = joined(choice.segments, Delta::Kind::kReasoning);
    Json message{{"role", "assistant"}, {"content", content}};
    if (content.empty() && !choice.calls.empty()) message["content"] = nullptr;
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!choice.calls.empty()) {
      message["tool_calls"] = Json::array();
      for (const ToolCall& call : choice.calls) message["tool_calls"].push_back(call_json(call));
    }
    Json told{{"finish_reason", finish_reason(choice.reason, !choice.calls.empty())},
              {"index", choice.index},
              {"message", std::move(message)}};
    if (ask().logprobs) told["logprobs"] = Json{{"content", take_probabilities(choice)}};
    return told;
  }

  EventTemplate content_, reasoning_;
};

class TextAnswer final : public OpenAiAnswer {
 public:
  explicit TextAnswer(AnswerSetup setup) : OpenAiAnswer(std::move(setup), "text_completion", "text_completion") {}

 private:
  static Json choice_json(Json index, Json text, Json probabilities, Json reason) {
    return {{"text", std::move(text)},
            {"index", std::move(index)},
            {"logprobs", std::move(probabilities)},
            {"finish_reason", std::move(reason)}};
  }
  Json choice_json(Choice& choice, std::string text, Json reason) {
    Json probabilities;
    if (ask().logprobs && !choice.told.empty()) probabilities = Json{{"content", take_probabilities(choice)}};
    return choice_json(choice.index, std::move(text), std::move(probabilities), std::move(reason));
  }

  // What most tokens are: a piece of text and nothing more.
  void append_text(std::string& bytes, const Choice& choice, std::string_view text) {
    if (text_.empty())
      text_ = EventTemplate(event(chunk(choice_json(EventTemplate::kOpen, EventTemplate::kOpen, nullptr, nullptr))), 2);
    text_.append_to(bytes, text, choice.index);
  }

  // With echo the prompt, once, before anything else of a choice.
  std::string begin(Choice& choice) {
    if (std::exchange(choice.begun, true) || !ask().echo) return {};
    return event(chunk(choice_json(choice, text_of_prompt(choice), nullptr)));
  }

  std::string piece_events(Choice& choice, std::string_view text, const std::vector<Delta>&,
                           const Timings& so_far) override {
    if (text.empty()) return {};
    std::string bytes = begin(choice);
    if (!ask().logprobs && !ask().timings_per_token) {
      append_text(bytes, choice, text);
      return bytes;
    }
    Json told = chunk(choice_json(choice, std::string(text), nullptr));
    if (ask().timings_per_token) told["timings"] = timings_json(so_far);
    return bytes + event(told);
  }

  std::string end_events(Choice& choice, const std::vector<Delta>&) override {
    std::string bytes = begin(choice);
    Json last = chunk(choice_json(choice, "", finish_reason(choice.reason, false)));
    // llama-server tells it here, asked for or not; of several choices the last to end has it for all.
    if (all_ended()) last["usage"] = usage_json(usage());
    last["timings"] = timings_json(choice.timings);
    add_seed(last);
    return bytes + event(last);
  }

  std::string last_events() override { return std::string(kDone); }

  Json whole_choice(Choice& choice) override {
    return choice_json(choice, (ask().echo ? text_of_prompt(choice) : std::string()) + choice.text,
                       finish_reason(choice.reason, false));
  }

  EventTemplate text_;
};

}  // namespace

std::unique_ptr<Answer> make_chat_answer(AnswerSetup setup) { return std::make_unique<ChatAnswer>(std::move(setup)); }
std::unique_ptr<Answer> make_text_answer(AnswerSetup setup) { return std::make_unique<TextAnswer>(std::move(setup)); }

}  // namespace terrace::serve::api
