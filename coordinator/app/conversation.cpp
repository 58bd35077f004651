#include "coordinator/app/conversation.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace terrace::app {

Conversation::Conversation(Engine& engine, Render render, ConversationOptions options)
    : engine_(&engine), render_(std::move(render)), options_(std::move(options)) {
  if (!options_.system.empty()) messages_.push_back({"system", options_.system});
}

Result<Conversation> Conversation::begin(Engine& engine, Render render, ConversationOptions options) {
  Conversation conversation(engine, std::move(render), std::move(options));
  TERRACE_RETURN_IF_ERROR(conversation.open_stream());
  return conversation;
}

Status Conversation::open_stream() {
  stream_.reset();
  text_.clear();
  tokens_.clear();
  TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(engine_->trunk()));
  stream_.emplace(std::move(stream));
  seen_until_step_ = 0;
  return {};
}

// Drops what the stream holds beyond its first n positions.
Status Conversation::keep_positions(std::size_t n) {
  if (n == stream_->length()) return {};
  TERRACE_ASSIGN_OR_RETURN(OpenStream kept, stream_->fork(static_cast<std::uint32_t>(n)));
  stream_.emplace(std::move(kept));
  return {};
}

Status Conversation::clear() {
  messages_.resize(options_.system.empty() ? 0 : 1);
  return open_stream();
}

// The tokens of the text behind its first `from` bytes; of the whole text BOS too, where the file asks for it.
Result<std::vector<std::int32_t>> Conversation::encode(const text::ChatText& said, std::size_t from) const {
  TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, engine_->tokenizer());
  std::vector<text::TextRange> plain;
  for (const text::TextRange& range : said.plain)
    if (range.end > from) plain.push_back({std::max(range.begin, from) - from, range.end - from});
  TERRACE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer->encode(std::string_view(said.text).substr(from),
                                                                            {.parse_special = true, .plain = plain}));
  const auto bos = tokenizer->leading_bos();
  if (from == 0 && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

Result<Conversation::Reply> Conversation::say(const std::string& message, const std::function<bool()>& interrupted,
                                              FunctionRef<Status(std::string_view)> on_text) {
  std::vector<text::ChatMessage> messages = messages_;
  messages.push_back({"user", message});
  TERRACE_ASSIGN_OR_RETURN(const text::ChatText said, render_(messages, true));
  const bool goes_on = said.text.starts_with(text_);
  TERRACE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, encode(said, goes_on ? text_.size() : 0));
  if (goes_on) ids.insert(ids.begin(), tokens_.begin(), tokens_.end());
  const std::uint32_t context = engine_->trunk().context();
  if (ids.size() > context)
    return Error(ErrorCode::kContextFull,
                 fmt::format("the conversation would have {} tokens with this message, and the context holds {}; say "
                             "less or begin anew; {}",
                             ids.size(), context, how_to_lengthen(context, engine_->trunk().info())));
  // What the stream holds of them, but the last: its logits begin the reply.
  const auto held_end = tokens_.begin() + stream_->length();
  const auto same = std::mismatch(tokens_.begin(), held_end, ids.begin(), ids.empty() ? ids.end() : ids.end() - 1);
  TERRACE_RETURN_IF_ERROR(keep_positions(static_cast<std::size_t>(same.first - tokens_.begin())));
  tokens_ = std::move(ids);

  GenerationRequest request;
  const auto held = tokens_.begin() + stream_->length();
  request.before.assign(tokens_.begin(), held);
  request.prompt.assign(held, tokens_.end());
  request.max_tokens = options_.max_tokens;
  request.batch = options_.batch;
  request.sampling = options_.sampling;
  request.interrupted = interrupted;
  request.seen_until_step = seen_until_step_;
  request.on_roll_back = tell_roll_back;
  TERRACE_ASSIGN_OR_RETURN(const Generation made, generate(*engine_, *stream_, request, on_text));

  // The end mark is the template's to write, so the token that ended the reply is none of the conversation.
  const std::size_t shown = made.tokens.size() - (made.stop_reason == StopReason::kEos ? 1 : 0);
  tokens_.insert(tokens_.end(), made.tokens.begin(), made.tokens.begin() + static_cast<std::ptrdiff_t>(shown));
  text_ = said.text + made.text;
  seen_until_step_ = std::max(seen_until_step_, made.last_step);
  messages.push_back({"assistant", made.text});
  messages_ = std::move(messages);
  return Reply{made.stop_reason, made.prompt_tokens, made.tokens.size(), made.prompt_ms, made.decode_ms};
}

}  // namespace terrace::app
