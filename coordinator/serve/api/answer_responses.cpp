// Answers of OpenAI's /v1/responses.
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/answer_segments.h"

namespace terrace::serve::api {
namespace {

class ResponsesAnswer final : public SegmentAnswer {
 public:
  explicit ResponsesAnswer(AnswerSetup setup)
      : SegmentAnswer(std::move(setup)), id_(random_id("resp_", 32, context())) {}

 private:
  std::string segment_id(Delta::Kind kind) const override {
    return random_id(kind == Delta::Kind::kContent     ? "msg_"
                     : kind == Delta::Kind::kReasoning ? "rs_"
                                                       : "fc_",
                     24, context());
  }

  // ---- items

  static Json part(const Segment& segment, std::string_view text) {
    if (segment.kind == Delta::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  static Json item(const Choice& choice, const Segment& segment, std::string_view status, bool empty) {
    Json content = empty ? Json::array() : Json::array({part(segment, segment.text)});
    if (segment.kind == Delta::Kind::kContent)
      return {{"id", segment.id}, {"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", content}};
    if (segment.kind == Delta::Kind::kReasoning)
      return {{"id", segment.id},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", content}};
    const ToolCall& call = choice.calls[segment.call];
    return {{"id", segment.id},   {"type", "function_call"}, {"status", status},
            {"call_id", call.id}, {"name", call.name},       {"arguments", empty ? "" : call.arguments}};
  }

  // ---- the response

  static bool is_full(const Choice& choice) {
    return choice.reason == EndReason::kLimit || choice.reason == EndReason::kContext;
  }

  Json told_back(const char* field, Json otherwise) const {
    const Json* value = find(*ask().body, field);
    return value == nullptr ? std::move(otherwise) : *value;
  }

  Json response(std::string_view status, Json output) const {
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created()},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", told_back("instructions", nullptr)},
            {"max_output_tokens", told_back("max_output_tokens", nullptr)},
            {"model", context().model.name},
            {"output", std::move(output)},
            {"parallel_tool_calls", ask().parallel_tool_calls},
            {"previous_response_id", nullptr},
            {"reasoning", told_back("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"temperature", ask().sampling.temperature},
            {"text", told_back("text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", told_back("tool_choice", "auto")},
            {"tools", told_back("tools", Json::array())},
            {"top_p", ask().sampling.top_p},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", told_back("metadata", Json::object())}};
  }

  Json finished_response(const Choice& choice) const {
    Json output = Json::array();
    for (const Segment& segment : choice.segments) output.push_back(item(choice, segment, "completed", false));
    Json object = response(is_full(choice) ? "incomplete" : "completed", std::move(output));
    if (is_full(choice)) object["incomplete_details"] = {{"reason", "max_output_tokens"}};
    object["usage"] = {{"input_tokens", choice.n_prompt},
                       {"input_tokens_details", Json{{"cached_tokens", choice.timings.cache_n}}},
                       {"output_tokens", choice.timings.predicted_n},
                       {"output_tokens_details", Json{{"reasoning_tokens", choice.n_reasoning}}},
                       {"total_tokens", choice.n_prompt + choice.timings.predicted_n}};
    add_seed(object);
    return object;
  }

  Json whole() override { return finished_response(choices()[0]); }

  // ---- events

  static std::string numbered(std::string_view type, Json number, const Json& fields) {
    Json data{{"type", type}, {"sequence_number", std::move(number)}};
    data.update(fields);
    return event(type, data);
  }
  std::string numbered(std::string_view type, const Json& fields) { return numbered(type, sequence_++, fields); }

  // The fields of an event about the content of a segment.
  static Json about(Delta::Kind kind, Json item_id, Json index, const Json& fields) {
    Json place{{"item_id", std::move(item_id)}, {"output_index", std::move(index)}};
    if (kind != Delta::Kind::kCall) place["content_index"] = 0;
    place.update(fields);
    return place;
  }
  std::string about(const Choice& choice, std::size_t index, std::string_view type, const Json& fields) {
    const Segment& segment = choice.segments[index];
    return numbered(type, about(segment.kind, segment.id, index, fields));
  }

  std::string answer_begins(const Timings&) override {
    const Json begun = response("in_progress", Json::array());
    std::string bytes = numbered("response.created", {{"response", begun}});
    bytes += numbered("response.in_progress", {{"response", begun}});
    return bytes;
  }

  std::string segment_begins(const Choice& choice, std::size_t index) override {
    const Segment& segment = choice.segments[index];
    std::string bytes = numbered("response.output_item.added",
                                 {{"output_index", index}, {"item", item(choice, segment, "in_progress", true)}});
    if (segment.kind != Delta::Kind::kCall)
      bytes += about(choice, index, "response.content_part.added", {{"part", part(segment, "")}});
    return bytes;
  }

  static std::string_view prefix(const Segment& segment) {
    return segment.kind == Delta::Kind::kContent     ? "response.output_text"
           : segment.kind == Delta::Kind::kReasoning ? "response.reasoning_text"
                                                     : "response.function_call_arguments";
  }

  std::string segment_grows(const Choice& choice, std::size_t index, std::string_view text) override {
    constexpr std::string_view kOpen = EventTemplate::kOpen;
    const Segment& segment = choice.segments[index];
    EventTemplate& form = growth(segment);
    if (form.empty()) {
      Json fields{{"delta", kOpen}};
      if (segment.kind == Delta::Kind::kContent) fields["logprobs"] = Json::array();
      form = EventTemplate(
          numbered(std::string(prefix(segment)) + ".delta", kOpen, about(segment.kind, kOpen, kOpen, fields)), 4);
    }
    std::string bytes;
    form.append_to(bytes, sequence_++, segment.id, index, text);
    return bytes;
  }

  std::string segment_ends(const Choice& choice, std::size_t index) override {
    const Segment& segment = choice.segments[index];
    std::string bytes;
    if (segment.kind == Delta::Kind::kCall) {
      const ToolCall& call = choice.calls[segment.call];
      bytes = about(choice, index, "response.function_call_arguments.done",
                    {{"name", call.name}, {"arguments", call.arguments}});
    } else {
      Json fields{{"text", segment.text}};
      if (segment.kind == Delta::Kind::kContent) fields["logprobs"] = Json::array();
      bytes = about(choice, index, std::string(prefix(segment)) + ".done", std::move(fields));
      bytes += about(choice, index, "response.content_part.done", {{"part", part(segment, segment.text)}});
    }
    bytes += numbered("response.output_item.done",
                      {{"output_index", index}, {"item", item(choice, segment, "completed", false)}});
    return bytes;
  }

  std::string answer_ends(const Choice& choice) override {
    return numbered(is_full(choice) ? "response.incomplete" : "response.completed",
                    {{"response", finished_response(choice)}});
  }

  std::string error_event(const Reply& reply) override {
    const Json error = Json::parse(reply.body)["error"];
    return numbered("error", {{"code", error["type"]}, {"message", error["message"]}, {"param", nullptr}});
  }

  std::string id_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Answer> make_responses_answer(AnswerSetup setup) {
  return std::make_unique<ResponsesAnswer>(std::move(setup));
}

}  // namespace terrace::serve::api
