#include "coordinator/serve/api/answer_base.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace terrace::serve::api {

AnswerBase::AnswerBase(AnswerSetup setup) : setup_(std::move(setup)), created_(setup_.context->unix_seconds()) {
  choices_.resize(setup_.seeds.size());
  for (std::size_t i = 0; i < choices_.size(); ++i) start_choice(choices_[i], i);
}

void AnswerBase::start_choice(Choice& choice, std::size_t index) const {
  choice = {};
  choice.index = index;
  choice.n_prompt = static_cast<std::uint32_t>(setup_.prompts[index / n_choices()].ids.size());
  if (!setup_.form) return;
  choice.parser = setup_.form->family->make(setup_.form->parser);
  std::vector<Delta> none;  // what the prompt has begun settles nothing yet
  choice.parser->push(setup_.form->begun, none);
}

std::string_view AnswerBase::content_type() const {
  return ask().stream && !failed_early_ ? "text/event-stream" : "application/json; charset=utf-8";
}

const std::string& AnswerBase::text_of_prompt(const Choice& choice) const {
  return setup_.prompts[choice.index / n_choices()].text;
}

// Counts a prompt once, whatever the number of its choices.
Usage AnswerBase::usage() const {
  Usage usage;
  for (const Choice& choice : choices_) {
    usage.completion += choice.timings.predicted_n;
    usage.reasoning += choice.n_reasoning;
    if (choice.index % n_choices() != 0) continue;
    usage.prompt += choice.n_prompt;
    usage.cached += choice.timings.cache_n;
  }
  return usage;
}

void AnswerBase::add_seed(Json& object) const {
  if (ask().random_seed && ask().sampling.temperature > 0) object["seed"] = setup_.seeds.front();
}

Json AnswerBase::take_probabilities(Choice& choice) const {
  return probabilities_json(std::exchange(choice.told, {}), ask().n_probs, *context().tokenizer);
}

Output AnswerBase::sent(Output out) {
  started_ = started_ || !out.bytes.empty();
  finished_ = finished_ || out.finished;
  return out;
}

Output AnswerBase::on_progress(std::size_t index, const PromptProgress& progress) {
  Choice& choice = choices_[index];
  if (finished_ || choice.closed || !ask().stream || !ask().return_progress) return {};
  return sent({.bytes = progress_event(choice, progress)});
}

void AnswerBase::note_tokens(Choice& choice, const Piece& piece) const {
  for (const Token& token : piece.tokens) {
    if (context().tokenizer->is_stop(token.id) && !ask().ignore_eos) continue;  // it ends the text and is none of it
    choice.ids.push_back(token.id);
    choice.ids_untold.push_back(token.id);
    if (ask().logprobs && token.logprobs != nullptr) choice.told.push_back(*token.logprobs);
  }
}

void AnswerBase::note_deltas(Choice& choice, std::vector<Delta>& deltas) const {
  if (!ask().parallel_tool_calls) {
    const auto second = std::ranges::find_if(deltas, [](const Delta& delta) { return delta.call > 0; });
    if (second != deltas.end()) {
      deltas.erase(second, deltas.end());
      choice.closed = true;
      choice.closed_as = EndReason::kEos;
    }
  }
  for (const Delta& delta : deltas) {
    if (delta.kind == Delta::Kind::kArguments) {
      choice.calls[delta.call].arguments += delta.text;
      continue;
    }
    const bool is_call = delta.kind == Delta::Kind::kCall;
    if (is_call || choice.segments.empty() || choice.segments.back().kind != delta.kind)
      choice.segments.push_back({delta.kind, segment_id(delta.kind), {}, delta.call});
    if (is_call) {
      choice.calls.push_back({random_id(call_id_prefix(), 24, context()), delta.text, {}});
    } else {
      choice.segments.back().text += delta.text;
    }
  }
}

// t_max_predict_ms, as llama-server has it: not within a line.
void AnswerBase::close_if_due(Choice& choice, const Timings& so_far, Output& out) const {
  if (!choice.closed && ask().max_predict_ms && choice.has_new_line && so_far.predicted_ms > *ask().max_predict_ms) {
    choice.closed = true;
    choice.closed_as = EndReason::kLimit;
  }
  out.cancel = choice.closed;
}

Output AnswerBase::on_piece(std::size_t index, const Piece& piece, const Timings& so_far) {
  Choice& choice = choices_[index];
  if (finished_ || choice.closed) return {};
  choice.has_new_line = choice.has_new_line || piece.text.find('\n') != std::string_view::npos;
  note_tokens(choice, piece);
  deltas_.clear();
  if (choice.parser != nullptr) {
    const bool was_reasoning = choice.parser->in_reasoning();
    choice.parser->push(piece.text, deltas_);
    if (was_reasoning || choice.parser->in_reasoning()) choice.n_reasoning += piece.tokens.size();
    note_deltas(choice, deltas_);
  } else {
    choice.text += piece.text;
  }
  Output out;
  if (ask().stream) out.bytes = piece_events(choice, piece.text, deltas_, so_far);
  close_if_due(choice, so_far, out);
  return sent(std::move(out));
}

// Of a choice that has ended nobody will tell again; it may be no more certain than this one.
Output AnswerBase::on_restart(std::size_t index, const Error& why) {
  if (finished_ || choices_[index].ended) return {};
  if (n_ended_ > 0) return fail(to_http(why));
  start_choice(choices_[index], index);
  return {};
}

Output AnswerBase::on_end(std::size_t index, const End& end) {
  Choice& choice = choices_[index];
  if (finished_ || choice.ended) return {};
  choice.ended = true;
  choice.reason = end.reason == EndReason::kCancelled ? choice.closed_as.value_or(end.reason) : end.reason;
  choice.stopping_word = end.stopping_word;
  choice.slot = end.slot;
  choice.stored_tokens = end.stored_tokens;
  choice.timings = end.timings;
  if (choice.reason == EndReason::kStopping)
    return fail({503,
                 "unavailable_error",
                 "the server is stopping: the request was not finished",
                 {},
                 {},
                 {},
                 false,
                 nothing_made()});
  if (choice.reason == EndReason::kCancelled)
    return fail({500, "server_error", "the request was cancelled before it was finished", {}, {}, {}, false, false});

  std::vector<Delta> deltas;
  if (choice.parser != nullptr && !choice.closed) {
    choice.parser->finish(deltas);
    note_deltas(choice, deltas);
  }
  Output out;
  ++n_ended_;
  if (ask().stream) out.bytes = end_events(choice, deltas);
  if (all_ended()) {
    out.bytes += ask().stream ? last_events() : dump(whole());
    out.finished = true;
  }
  return sent(std::move(out));
}

Output AnswerBase::on_error(std::size_t index, const Error& error, const Timings& so_far) {
  if (finished_) return {};
  HttpError http = to_http(error);
  // A node may refuse a step, or be busy, when the prompt before it has long been computed.
  const bool worked = so_far.prompt_n > 0;
  http.retry = http.retry && !worked && choices_[index].ids.empty();  // never once work was done
  http.undone = error.code() == ErrorCode::kRefused && !worked && nothing_made();
  return fail(http);
}

bool AnswerBase::nothing_made() const {
  return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.ids.empty() && !choice.slot; });
}

Output AnswerBase::fail(const HttpError& error) {
  const Reply reply =
      to_reply(error, ask().route == kOnMessages ? Dialect::kAnthropic : Dialect::kOpenAi, setup_.request_id);
  Output out{.bytes = {}, .finished = true};
  if (started_) {
    out.bytes = error_event(reply);
  } else {
    failed_early_ = true;
    status_ = reply.status;
    retry_after_s_ = reply.retry_after_s;
    undone_ = reply.undone;
    out.bytes = reply.body;
  }
  return sent(std::move(out));
}

std::string joined(const std::vector<Segment>& segments, tool_calls::Delta::Kind kind) {
  std::string text;
  for (const Segment& segment : segments)
    if (segment.kind == kind) text += segment.text;
  return text;
}

std::string_view finish_reason(EndReason reason, bool has_calls) {
  if (reason == EndReason::kLimit || reason == EndReason::kContext) return "length";
  return has_calls ? "tool_calls" : "stop";
}

}  // namespace terrace::serve::api
