#include "tests/unit/coordinator/serve/api/api_under_test.h"

#include <gtest/gtest.h>

#include "coordinator/text/byte_alphabet.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::serve::api::test {
namespace {

text::Vocabulary make_vocabulary() {
  text::Vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte)
    v.tokens.push_back(text::alphabet_character(static_cast<std::uint8_t>(byte)));
  v.types.assign(v.tokens.size(), 1);
  for (const char* text : {"<|im_start|>", "<|im_end|>"}) v.tokens.emplace_back(text);
  for (const char* text : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) v.tokens.emplace_back(text);
  v.types.insert(v.types.end(), {3, 3, 4, 4, 4, 4});
  while (v.tokens.size() < 32000) {
    v.tokens.push_back("filler" + std::to_string(v.tokens.size()));
    v.types.push_back(1);
  }
  v.merges = {};
  v.eos = kEndToken;
  return v;
}

Timings timings_after(std::size_t n) {
  return {.cache_n = 1,
          .prompt_n = 3,
          .prompt_ms = 30,
          .predicted_n = n,
          .predicted_ms = 10.0 * static_cast<double>(n),
          .queue_ms = 0};
}

class Player {
 public:
  Player(Answer& answer, const std::vector<Request>& requests, const Script& script)
      : answer_(answer), requests_(requests), script_(script) {}

  Played play() {
    for (std::size_t i = 0; i < requests_.size() && !played_.finished; ++i) begin(i);
    for (std::size_t n = 0; n < script_.pieces.size() && !played_.finished; ++n) {
      if (n == script_.restart_after) restart(n);
      for (std::size_t i = 0; i < requests_.size() && !played_.finished; ++i) piece(i, n);
    }
    for (std::size_t i = 0; i < requests_.size() && !played_.finished; ++i) end(i);
    played_.status = answer_.status();
    played_.content_type = answer_.content_type();
    return std::move(played_);
  }

 private:
  void begin(std::size_t i) {
    cancelled_.push_back(false);
    if (!requests_[i].progress) return;
    take(i, answer_.on_progress(i, {.total = 4, .cached = 1, .processed = 1, .ms = 0}));
    take(i, answer_.on_progress(i, {.total = 4, .cached = 1, .processed = 4, .ms = 30}));
  }

  void restart(std::size_t n_told) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      take(i, answer_.on_restart(i, Error(ErrorCode::kUncertain, "box1:9000: computes wrong")));
      for (std::size_t n = 0; n < n_told; ++n) piece(i, n);
    }
  }

  void piece(std::size_t i, std::size_t n) {
    if (cancelled_[i]) return;
    if (n == script_.fail_after)
      return take(i, answer_.on_error(i, Error(ErrorCode::kNotFinite, "row 7 is not finite"), {}));
    const std::string& text = script_.pieces[n];
    sampler::Logprobs logprobs{.chosen = {static_cast<unsigned char>(text[0]), -0.5}, .top = {}};
    logprobs.top = {logprobs.chosen, {'?', -1.5}};
    logprobs.top.resize(std::min<std::size_t>(requests_[i].n_probs, 2));
    const Token token{
        .id = logprobs.chosen.token, .logits_xxh3 = 0, .logprobs = requests_[i].n_probs > 0 ? &logprobs : nullptr};
    take(i, answer_.on_piece(i, {.text = text, .tokens = {&token, 1}}, timings_after(n + 1)));
  }

  void end(std::size_t i) {
    const std::size_t n = script_.pieces.size();
    if (script_.fail_after == n)
      return take(i, answer_.on_error(i, Error(ErrorCode::kNotFinite, "row 7 is not finite"), {}));
    const EndReason reason = cancelled_[i] ? EndReason::kCancelled : script_.reason;
    take(i, answer_.on_end(i, {.reason = reason,
                               .stopping_word = script_.stopping_word,
                               .slot = 0U,
                               .prompt_tokens = static_cast<std::uint32_t>(requests_[i].prompt.size()),
                               .stored_tokens = 5,
                               .timings = timings_after(n)}));
  }

  void take(std::size_t i, const Output& output) {
    EXPECT_FALSE(played_.finished) << "an event after the end";
    played_.bytes += output.bytes;
    if (!output.bytes.empty()) played_.parts.push_back(output.bytes);
    played_.finished = output.finished;
    if (output.cancel && !cancelled_[i]) {
      cancelled_[i] = true;
      ++played_.n_cancelled;
    }
  }

  Answer& answer_;
  const std::vector<Request>& requests_;
  const Script& script_;
  std::vector<bool> cancelled_;
  Played played_;
};

}  // namespace

const char* const kTemplate =
    "{%- if tools %}<|im_start|>tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}Answer with "
    "<tool_call>{\"name\": N, \"arguments\": A}</tool_call><|im_end|>\n{% endif %}"
    "{%- if reasoning_effort %}<|im_start|>effort {{ reasoning_effort }}<|im_end|>\n{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>{{ "
    "'\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}";

text::Tokenizer make_tokenizer() {
  auto made = text::Tokenizer::make(make_vocabulary());
  if (!made.ok()) throw std::runtime_error(made.error().text());
  return std::move(*made);
}

Server::Server() : tokenizer_(make_tokenizer()), template_(text::jinja::Template::compile(kTemplate).value()) {
  context.model = {.name = "tiny.gguf",
                   .path = "tiny.gguf",
                   .file_type = "Q4_K - Medium",
                   .n_context_trained = 8192,
                   .n_embedding = 1024,
                   .n_parameters = 1'000'000,
                   .size_bytes = 700'000};
  context.tokenizer = &tokenizer_;
  context.chat_template = &template_;
  context.chat_template_source = kTemplate;
  context.context_tokens = 512;
  context.n_slots = 4;
  context.sampling = default_sampling();
  context.build = "b1-test";
  context.started = 1'795'974'771;
  context.slot_files = true;
  context.unix_seconds = [] { return std::int64_t{1'795'974'773}; };
  context.local_time = [] { return *text::jinja::parse_local_time("2026-03-14T15:09:26"); };
  context.random = [] { return std::uint64_t{0x0123456789abcdef}; };
}

Played play(Route route, const std::string& body, const Server& server, const Script& script) {
  ReadGeneration read = read_generation(route, body, server.context, "req-1");
  EXPECT_NE(read.generation.has_value(), read.refusal.has_value());
  if (read.refusal) {
    Played played;
    played.status = read.refusal->status;
    played.bytes = read.refusal->body;
    played.finished = true;
    return played;
  }
  return Player(*read.generation->answer, read.generation->requests, script).play();
}

std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    if (end == std::string::npos) throw std::runtime_error("an event without an end: " + stream.substr(at));
    std::string text = stream.substr(at, end - at);
    at = end + 2;
    std::string name;
    if (text.starts_with("event: ")) {
      name = text.substr(7, text.find('\n') - 7);
      text.erase(0, text.find('\n') + 1);
    }
    if (!text.starts_with("data: ")) throw std::runtime_error("no data: " + text);
    text.erase(0, 6);
    Json data = text == "[DONE]" ? Json(text) : Json::parse(text);
    events.push_back(name.empty() ? std::move(data) : Json{{"event", name}, {"data", std::move(data)}});
  }
  return events;
}

}  // namespace terrace::serve::api::test
