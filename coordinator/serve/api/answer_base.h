// What answers of all APIs have in common: which requests have ended, the first byte, errors before and after it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/serve/api/answer_parts.h"
#include "coordinator/serve/api/ask.h"
#include "coordinator/serve/api/generation.h"
#include "coordinator/serve/api/prompt.h"
#include "coordinator/serve/tool_calls/reply_parser.h"

namespace terrace::serve::api {

struct AnswerSetup {
  const Context* context = nullptr;
  Ask ask;
  std::vector<Prompt> prompts;       // each with `ask.n` choices: request i is choice i % n of prompt i / n
  std::vector<std::uint64_t> seeds;  // of each request
  std::optional<ReplyForm> form;     // of chats
  std::string request_id;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

// A stretch of a chat's reply of one kind: content, reasoning, or one call.
struct Segment {
  tool_calls::Delta::Kind kind = tool_calls::Delta::Kind::kContent;  // never kArguments
  std::string id;                                                    // of it, for APIs that name it
  std::string text;                                                  // of content and reasoning
  std::size_t call = 0;                                              // of a call: its place in Choice::calls
};

class AnswerBase : public Answer {
 public:
  Output on_progress(std::size_t index, const PromptProgress& progress) final;
  Output on_piece(std::size_t index, const Piece& piece, const Timings& so_far) final;
  Output on_restart(std::size_t index, const Error& why) final;
  Output on_end(std::size_t index, const End& end) final;
  Output on_error(std::size_t index, const Error& error, const Timings& so_far) final;
  int status() const final { return status_; }
  std::string_view content_type() const final;
  std::optional<std::uint32_t> retry_after_s() const final { return retry_after_s_; }
  bool undone() const final { return undone_; }

 protected:
  using Delta = tool_calls::Delta;

  // One request's part of the answer.
  struct Choice {
    std::size_t index = 0;
    std::string text;  // all of it, as the model wrote it; empty for chats
    std::vector<std::int32_t> ids;
    std::vector<sampler::Logprobs> told;   // not told yet
    std::vector<std::int32_t> ids_untold;  // likewise
    std::uint32_t n_prompt = 0;            // tokens of its prompt
    bool has_new_line = false;
    bool begun = false;   // something of it was sent
    bool closed = false;  // further pieces are left out: the request is being cancelled
    bool ended = false;
    std::optional<EndReason> closed_as;  // what the end is then told as
    // Once ended.
    EndReason reason = EndReason::kEos;
    std::string stopping_word;
    std::optional<std::uint32_t> slot;
    std::uint32_t stored_tokens = 0;
    Timings timings;
    // Of chats.
    std::unique_ptr<tool_calls::ReplyParser> parser;
    std::vector<Segment> segments;
    std::vector<ToolCall> calls;
    std::uint64_t n_reasoning = 0;  // tokens of the reasoning, its marks included
    std::size_t n_opened = 0;       // segments that were told to have begun
  };

  explicit AnswerBase(AnswerSetup setup);

  // Of streams: the bytes that an event adds. `deltas` only of chats, where `text` is what they were made of.
  virtual std::string progress_event(Choice&, const PromptProgress&) { return {}; }
  virtual std::string piece_events(Choice&, std::string_view text, const std::vector<Delta>& deltas,
                                   const Timings& so_far) = 0;
  virtual std::string end_events(Choice&, const std::vector<Delta>& deltas) = 0;
  virtual std::string last_events() = 0;  // after the last choice's end
  virtual std::string error_event(const Reply& reply) { return "data: " + reply.body + "\n\n"; }
  // Otherwise: the whole body.
  virtual Json whole() = 0;

  const Context& context() const { return *setup_.context; }
  const Ask& ask() const { return setup_.ask; }
  const AnswerSetup& setup() const { return setup_; }
  std::vector<Choice>& choices() { return choices_; }
  std::uint32_t n_choices() const { return setup_.ask.n.value_or(1); }  // of one prompt
  std::int64_t created() const { return created_; }
  const std::string& text_of_prompt(const Choice& choice) const;
  std::uint64_t seed_of(const Choice& choice) const { return setup_.seeds[choice.index]; }
  Usage usage() const;
  bool nothing_made() const;
  bool all_ended() const { return n_ended_ == choices_.size(); }
  // The seed, where nobody asked for one and it mattered: so that the answer can be had again.
  void add_seed(Json& object) const;
  Json take_probabilities(Choice& choice) const;
  virtual std::string_view call_id_prefix() const { return "call_"; }
  // Of the APIs whose answers are lists: the name of a segment; empty where it has none.
  virtual std::string segment_id(Delta::Kind) const { return {}; }

 private:
  void start_choice(Choice& choice, std::size_t index) const;
  void note_tokens(Choice& choice, const Piece& piece) const;
  void note_deltas(Choice& choice, std::vector<Delta>& deltas) const;
  void close_if_due(Choice& choice, const Timings& so_far, Output& out) const;
  Output fail(const HttpError& error);
  Output sent(Output out);

  AnswerSetup setup_;
  std::int64_t created_;
  std::vector<Choice> choices_;
  std::vector<Delta> deltas_;  // of the piece at hand; kept for its memory
  std::size_t n_ended_ = 0;
  bool started_ = false;  // the first byte is out
  bool finished_ = false;
  bool failed_early_ = false;  // the answer is an HTTP error
  int status_ = 200;
  std::optional<std::uint32_t> retry_after_s_;
  bool undone_ = false;
};

// The text of all segments of `kind`.
std::string joined(const std::vector<Segment>& segments, tool_calls::Delta::Kind kind);

// "stop", "length" or "tool_calls".
std::string_view finish_reason(EndReason reason, bool has_calls);

std::unique_ptr<Answer> make_chat_answer(AnswerSetup setup);
std::unique_ptr<Answer> make_text_answer(AnswerSetup setup);        // /v1/completions
std::unique_ptr<Answer> make_completion_answer(AnswerSetup setup);  // /completion
std::unique_ptr<Answer> make_responses_answer(AnswerSetup setup);
std::unique_ptr<Answer> make_messages_answer(AnswerSetup setup);

}  // namespace terrace::serve::api
