// Answers of llama-server's own /completion.
#include <nlohmann/json.hpp>

#include "coordinator/serve/api/answer_base.h"
#include "coordinator/serve/api/event_template.h"

namespace terrace::serve::api {
namespace {

class CompletionAnswer final : public AnswerBase {
 public:
  explicit CompletionAnswer(AnswerSetup setup) : AnswerBase(std::move(setup)) {}

 private:
  std::string progress_event(Choice& choice, const PromptProgress& progress) override {
    Json chunk = partial(choice, "", 0);
    chunk["prompt_progress"] = {{"total", progress.total},
                                {"cache", progress.cached},
                                {"processed", progress.processed},
                                {"time_ms", static_cast<std::int64_t>(progress.ms)}};
    return event(chunk);
  }

  std::string piece_events(Choice& choice, std::string_view text, const std::vector<Delta>&,
                           const Timings& so_far) override {
    if (text.empty()) return {};
    if (!ask().timings_per_token && !ask().logprobs) return text_event(choice, text, so_far.predicted_n);
    Json chunk = partial(choice, text, so_far.predicted_n);
    if (ask().timings_per_token) chunk["timings"] = timings_json(so_far);
    if (ask().logprobs) chunk["completion_probabilities"] = take_probabilities(choice);
    return event(chunk);
  }

  std::string end_events(Choice& choice, const std::vector<Delta>&) override {
    return event(wanted(final(choice, "", std::exchange(choice.ids_untold, {}))));
  }

  std::string last_events() override { return {}; }

  Json whole() override {
    Json results = Json::array();
    for (Choice& choice : choices())
      results.push_back(
          wanted(final(choice, choice.text, ask().return_tokens ? choice.ids : std::vector<std::int32_t>())));
    return results.size() == 1 ? results.front() : results;
  }

  static Json partial(Json index, Json text, Json tokens, Json n_predicted, Json n_prompt) {
    return {{"index", std::move(index)},
            {"content", std::move(text)},
            {"tokens", std::move(tokens)},
            {"stop", false},
            {"id_slot", -1},  // as llama-server tells it: known at the end
            {"tokens_predicted", std::move(n_predicted)},
            {"tokens_evaluated", std::move(n_prompt)}};
  }
  static Json partial(Choice& choice, std::string_view text, std::uint64_t n_predicted) {
    return partial(choice.index, text, std::exchange(choice.ids_untold, {}), n_predicted, choice.n_prompt);
  }

  // partial() as an event: what most tokens are.
  std::string text_event(Choice& choice, std::string_view text, std::uint64_t n_predicted) {
    constexpr std::string_view kOpen = EventTemplate::kOpen;
    if (text_.empty()) text_ = EventTemplate(event(partial(kOpen, kOpen, kOpen, kOpen, kOpen)), 5);
    std::string bytes;
    text_.append_to(bytes, choice.index, text, choice.ids_untold, n_predicted, choice.n_prompt);
    choice.ids_untold.clear();
    return bytes;
  }

  static std::string_view stop_type(EndReason reason) {
    switch (reason) {
      case EndReason::kEos:
        return "eos";
      case EndReason::kStop:
        return "word";
      case EndReason::kLimit:
      case EndReason::kContext:
        return "limit";
      default:
        return "none";
    }
  }

  Json final(Choice& choice, std::string_view text, const std::vector<std::int32_t>& ids) {
    Json object{{"index", choice.index},
                {"content", text},
                {"tokens", ids},
                {"id_slot", choice.slot ? Json(*choice.slot) : Json(-1)},
                {"stop", true},
                {"model", context().model.name},
                {"tokens_predicted", choice.timings.predicted_n},
                {"tokens_evaluated", choice.n_prompt},
                {"generation_settings", generation_settings(ask(), seed_of(choice), false)},
                {"prompt", text_of_prompt(choice)},
                {"has_new_line", choice.has_new_line},
                {"truncated", choice.reason == EndReason::kContext},
                {"stop_type", stop_type(choice.reason)},
                {"stopping_word", choice.stopping_word},
                {"tokens_cached", choice.stored_tokens},
                {"timings", timings_json(choice.timings)}};
    if (ask().logprobs && (!ask().stream || !choice.told.empty()))
      object["completion_probabilities"] = take_probabilities(choice);
    return object;
  }

  // response_fields: names, or paths as "timings/predicted_n".
  Json wanted(const Json& object) const {
    if (ask().response_fields.empty()) return object;
    Json chosen = Json::object();
    for (const std::string& path : ask().response_fields) {
      const Json* value = &object;
      for (std::size_t begin = 0; value != nullptr && begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        value = find(*value, path.substr(begin, end - begin));
        begin = end + 1;
      }
      if (value != nullptr) chosen[path] = *value;
    }
    return chosen;
  }

  EventTemplate text_;
};

}  // namespace

std::unique_ptr<Answer> make_completion_answer(AnswerSetup setup) {
  return std::make_unique<CompletionAnswer>(std::move(setup));
}

}  // namespace terrace::serve::api
