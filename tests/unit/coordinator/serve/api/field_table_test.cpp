// Every row of the field table: honoured shows in what is computed or answered, accepted and neutral do not, refused
// and unknown are a 400 that names the field.
#include "coordinator/serve/api/field_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "coordinator/serve/api/information.h"
#include "tests/test_data.h"
#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api {
namespace {

using test::Json;
using test::Played;
using testing::HasSubstr;

struct RouteCase {
  RouteBit bit;
  Json body;  // the least that is answered
};

const std::vector<RouteCase>& routes() {
  static const Json user = Json::array({{{"role", "user"}, {"content", "hi"}}});
  static const std::vector<RouteCase> all = {
      {kOnChat, {{"messages", user}}},
      {kOnText, {{"prompt", "hi"}}},
      {kOnCompletion, {{"prompt", "hi"}}},
      {kOnResponses, {{"input", "hi"}}},
      {kOnMessages, {{"messages", user}}},
      {kOnCountTokens, {{"messages", user}}},
      {kOnTokenize, {{"content", "hi<|im_end|>"}}},
      {kOnDetokenize, {{"tokens", {104, 105}}}},
      {kOnApplyTemplate, {{"messages", user}}},
      {kOnSlots, {{"filename", "a.bin"}}},
  };
  return all;
}

struct Outcome {
  int status;
  std::string text;  // all that was asked of the scheduler and all that was answered
};

std::string of_request(const Request& r) {
  std::string biases, stops;
  for (const sampler::LogitBias& bias : r.logit_bias) biases += fmt::format("{}:{} ", bias.token, bias.bias);
  for (const std::string& stop : r.stops) stops += stop + " ";
  const sampler::SamplingOptions& s = r.sampling;
  return fmt::format(
      "prompt {} max {} t {} k {} p {} min {} rep {} pres {} freq {} last {} seed {} bias {} grammar {} "
      "stops {} eos {} probs {} reuse {} slot {} progress {}\n",
      fmt::join(r.prompt, ","), r.max_tokens, s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty,
      s.presence_penalty, s.frequency_penalty, s.repeat_last_n, s.seed, biases, r.grammar != nullptr, stops,
      r.ignore_eos, r.n_probs, r.reuse_prefix, r.slot ? static_cast<int>(*r.slot) : -1, r.progress);
}

Outcome generate(Route route, const std::string& body, const test::Server& server) {
  const ReadGeneration read = read_generation(route, body, server.context, "id");
  if (read.refusal) return {read.refusal->status, read.refusal->body};
  std::string text = fmt::format("ping {}\n", read.generation->ping);
  for (const Request& request : read.generation->requests) text += of_request(request);
  // Lines for t_max_predict_ms, a thought for reasoning_format, two calls for parallel_tool_calls.
  const test::Script script{.pieces = {"<think>a</think>b\n", "c<tool_call>{\"name\":\"f\"}</tool_call>",
                                       "<tool_call>{\"name\":\"g\"}</tool_call>"}};
  const Played played = test::play(route, body, server, script);
  return {played.status, text + played.content_type + played.bytes + fmt::format("cancelled {}", played.n_cancelled)};
}

Outcome outcome(RouteBit route, const Json& body, const test::Server& server) {
  const std::string text = body.dump();
  const auto of_reply = [](const Reply& reply) { return Outcome{reply.status, reply.body}; };
  switch (route) {
    case kOnChat:
      return generate(Route::kChatCompletions, text, server);
    case kOnText:
      return generate(Route::kTextCompletions, text, server);
    case kOnCompletion:
      return generate(Route::kCompletion, text, server);
    case kOnResponses:
      return generate(Route::kResponses, text, server);
    case kOnMessages:
      return generate(Route::kMessages, text, server);
    case kOnCountTokens:
      return of_reply(count_tokens(text, server.context));
    case kOnTokenize:
      return of_reply(tokenize(text, server.context));
    case kOnDetokenize:
      return of_reply(detokenize(text, server.context));
    case kOnApplyTemplate:
      return of_reply(apply_template(text, server.context));
    case kOnSlots:
      break;
  }
  const ReadSlotCommand read = read_slot_command("0", "save", text, server.context);
  return read.refusal ? of_reply(*read.refusal) : Outcome{200, read.command->file_name};
}

// A value that changes something, and what has to stand beside it for that.
struct Sample {
  Json value;
  Json beside = Json::object();
};

Json function(const char* name) { return {{"name", name}, {"description", "d"}}; }

const std::map<std::string, Sample>& samples() {
  static const Json stream{{"stream", true}};
  static const Json tools{{"tools", Json::array({{{"type", "function"}, {"function", function("f")}}})}};
  static const std::map<std::string, Sample> all = {
      {"temperature", {0.5}},
      {"top_k", {7}},
      {"top_p", {0.5}},
      {"min_p", {0.25}},
      {"repeat_penalty", {1.5}},
      {"presence_penalty", {0.5}},
      {"frequency_penalty", {0.5}},
      {"repeat_last_n", {-1}},
      {"seed", {42}},
      {"logit_bias", {{{"10", -5}}}},
      {"stop", {"x"}},
      {"stop_sequences", {{"x"}}},
      {"max_tokens", {3}},
      {"max_completion_tokens", {3}},
      {"n_predict", {3}},
      {"max_output_tokens", {3}},
      {"t_max_predict_ms", {1}},
      {"ignore_eos", {true}},
      {"grammar", {"root ::= \"x\""}},
      {"json_schema", {{{"type", "integer"}}}},
      {"stream", {true}},
      {"stream_options", {{{"include_usage", true}}, stream}},
      {"return_progress", {true, stream}},
      {"timings_per_token", {true, stream}},
      {"return_tokens", {true}},
      {"n", {2}},
      {"n_cmpl", {2}},
      {"n_probs", {2}},
      {"logprobs", {true}},
      {"top_logprobs", {2, {{"logprobs", true}}}},
      {"echo", {true}},
      {"response_fields", {{"content"}}},
      {"cache_prompt", {false}},
      {"id_slot", {1}},
      {"sse_ping_interval", {-1}},
      {"response_format", {{{"type", "json_object"}}}},
      {"text", {{{"format", {{"type", "json_object"}}}}}},
      {"prompt", {"ho"}},
      {"messages", {Json::array({{{"role", "user"}, {"content", "hello"}}})}},
      {"system", {"Be brief."}},
      {"input", {"ho"}},
      {"instructions", {"Be brief."}},
      {"tools", {tools["tools"]}},
      {"tool_choice", {"none", tools}},
      {"parallel_tool_calls", {false, tools}},
      {"chat_template_kwargs", {{{"enable_thinking", true}}}},
      {"reasoning_effort", {"high"}},
      {"reasoning", {{{"effort", "high"}}}},
      {"thinking", {{{"type", "enabled"}}}},
      {"reasoning_budget", {0, {{"chat_template_kwargs", Json::object()}}}},
      {"thinking_budget_tokens", {0}},
      {"reasoning_format", {"none"}},
      {"add_generation_prompt", {false}},
      {"continue_final_message", {false, {{"messages", Json::array({{{"role", "assistant"}, {"content", "I"}}})}}}},
      {"metadata", {{{"a", "b"}}}},
      {"content", {"ho"}},
      {"add_special", {true}},
      {"parse_special", {false}},
      {"with_pieces", {true}},
      {"tokens", {{104}}},
      {"filename", {"b.bin"}},
  };
  return all;
}

// Samples of fields that a route reads in a form of its own.
Sample sample_of(const std::string& name, RouteBit route) {
  const bool anthropic = route == kOnMessages || route == kOnCountTokens;
  if (name == "logprobs" && route == kOnText) return {2};
  Sample sample = samples().at(name);
  const Json anthropic_tools = Json::array({function("f")});
  Json responses_tools = Json::array({function("f")});
  responses_tools[0]["type"] = "function";
  const Json own_tools = anthropic ? anthropic_tools : responses_tools;
  if (name == "tools" && (anthropic || route == kOnResponses)) sample.value = own_tools;
  if (name == "tool_choice" && anthropic) sample.value = {{"type", "none"}};
  if (sample.beside.contains("tools") && (anthropic || route == kOnResponses)) sample.beside["tools"] = own_tools;
  return sample;
}

// What cannot be told by the small server (the template's switch is off already, BOS and EOS are not added), what
// changes a reply and no prompt, and usage, which /v1/completions always tells.
bool shows(std::string_view name, RouteBit route) {
  if (route == kOnApplyTemplate && (name == "parallel_tool_calls" || name == "reasoning_format")) return false;
  if (route == kOnText && name == "stream_options") return false;
  return name != "reasoning_budget" && name != "thinking_budget_tokens" && name != "add_special";
}

class FieldTable : public testing::Test {
 protected:
  test::Server server_;
};

template <class Check>
void for_each_use(FieldKind kind, const Check& check) {
  for (const FieldRow& row : field_rows())
    for (const RouteCase& route : routes())
      if (row.kind == kind && (row.routes & route.bit) != 0) {
        SCOPED_TRACE(fmt::format("field {} on route {}", row.name, static_cast<int>(route.bit)));
        check(row, route);
      }
}

void expect_names(const Outcome& found, RouteBit route, std::string_view field) {
  ASSERT_EQ(found.status, 400) << found.text;
  const Json body = Json::parse(found.text, nullptr, false);
  ASSERT_TRUE(body.is_object()) << found.text;
  EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(fmt::format("'{}'", field)));
  if (route == kOnMessages || route == kOnCountTokens) return;  // Anthropic's errors have no place for it
  EXPECT_EQ(body["error"]["param"], Json(field));
}

TEST_F(FieldTable, HonouredField_ChangesWhatIsComputedOrAnswered) {
  for_each_use(FieldKind::kHonoured, [&](const FieldRow& row, const RouteCase& route) {
    const std::string name(row.name);
    if (!samples().contains(name)) {
      ADD_FAILURE() << "no sample";
      return;
    }
    const Sample sample = sample_of(name, route.bit);
    Json without = route.body;
    without.update(sample.beside);
    Json with = without;
    with[name] = sample.value;
    const Outcome before = outcome(route.bit, without, server_);
    const Outcome after = outcome(route.bit, with, server_);
    EXPECT_EQ(before.status, 200) << before.text;
    EXPECT_EQ(after.status, 200) << after.text;
    EXPECT_NE(before.text == after.text, shows(row.name, route.bit));
  });
}

TEST_F(FieldTable, AcceptedField_ChangesNothing) {
  for_each_use(FieldKind::kAccepted, [&](const FieldRow& row, const RouteCase& route) {
    const Outcome before = outcome(route.bit, route.body, server_);
    for (const Json& value : {Json("x"), Json(true), Json{{"k", "v"}}}) {
      Json with = route.body;
      with[std::string(row.name)] = value;
      const Outcome after = outcome(route.bit, with, server_);
      EXPECT_EQ(after.status, 200) << after.text;
      EXPECT_EQ(before.text, after.text);
    }
  });
}

TEST_F(FieldTable, FieldsThatAskForNothing_AreTakenOnEveryGeneratingRoute) {
  const Json none = {{"user", "u"},
                     {"metadata", Json::object()},
                     {"store", false},
                     {"service_tier", "auto"},
                     {"safety_identifier", "s"},
                     {"prompt_cache_key", "k"}};
  for (const RouteCase& route : routes()) {
    if ((route.bit & (kOnChat | kOnText | kOnCompletion | kOnResponses | kOnMessages)) == 0) continue;
    for (const auto& [name, value] : none.items()) {
      Json body = route.body;
      body[name] = value;
      const Outcome found = outcome(route.bit, body, server_);
      EXPECT_EQ(found.status, 200) << name << " " << found.text;
    }
  }
}

TEST_F(FieldTable, NeutralField_TakesOnlyWhatChangesNothing) {
  for_each_use(FieldKind::kNeutral, [&](const FieldRow& row, const RouteCase& route) {
    const std::string name(row.name);
    const Outcome before = outcome(route.bit, route.body, server_);
    for (const Json& value : Json::parse(row.note)) {
      Json with = route.body;
      with[name] = value;
      const Outcome after = outcome(route.bit, with, server_);
      EXPECT_EQ(after.status, 200) << after.text;
    }
    for (const Json& value : {Json(77), Json("other"), Json::array({1}), Json{{"a", 1}}}) {
      Json with = route.body;
      with[name] = value;
      expect_names(outcome(route.bit, with, server_), route.bit, name);
    }
    EXPECT_EQ(before.status, 200);
  });
}

TEST_F(FieldTable, RefusedField_IsNamedUnlessNull) {
  for_each_use(FieldKind::kRefused, [&](const FieldRow& row, const RouteCase& route) {
    Json with = route.body;
    with[std::string(row.name)] = "x";
    expect_names(outcome(route.bit, with, server_), route.bit, row.name);
    with[std::string(row.name)] = nullptr;
    EXPECT_EQ(outcome(route.bit, with, server_).status, 200);
  });
}

// The templates of other families' APIs may begin a talk by themselves; Anthropic's wants a message.
TEST_F(FieldTable, NoMessageAtAll_IsNamedOnAnthropicsRoutes) {
  const Json none{{"messages", Json::array()}};
  for (const RouteBit route : {kOnMessages, kOnCountTokens}) {
    const Outcome found = outcome(route, none, server_);
    expect_names(found, route, "messages");
    EXPECT_THAT(found.text, HasSubstr("invalid_request_error"));
  }
}

TEST_F(FieldTable, UnknownField_IsNamedWithASuggestion) {
  for (const RouteCase& route : routes()) {
    Json with = route.body;
    with["no_such_field"] = 1;
    expect_names(outcome(route.bit, with, server_), route.bit, "no_such_field");
  }
  const Outcome misspelt = outcome(kOnCompletion, {{"prompt", "hi"}, {"temprature", 1}}, server_);
  EXPECT_THAT(misspelt.text, HasSubstr("did you mean temperature?"));
}

// Whatever is sent for a field: it is taken, or it is a 400 that names it (or one that it contradicts).
TEST_F(FieldTable, AnyValueOfAnyField_IsTakenOrNamed) {
  const Json values = Json::parse(
      R"([true, false, 0, 1, -1, -2, 5, 1.5, -1.5, 1e300, -1e300, 9223372036854775807, 9223372036854775808,
          18446744073709551615, -9223372036854775808, 1e20, "", "x", "NaN", "none", "auto", [], [[]], [null], [1], ["x"],
          [1, "x"], [{}], [{"role": "user"}], [{"role": "user", "content": 5}], [{"type": "function"}], {}, {"a": 1},
          {"type": 5}, {"type": "function"}, {"type": "json_schema"}, {"1": "x"}, [[1, 2, 3]], [[-1, 1]]])");
  for (const FieldKind kind : {FieldKind::kHonoured, FieldKind::kAccepted, FieldKind::kNeutral, FieldKind::kRefused})
    for_each_use(kind, [&](const FieldRow& row, const RouteCase& route) {
      for (const Json& value : values) {
        Json with = route.body;
        with[std::string(row.name)] = value;
        const Outcome found = outcome(route.bit, with, server_);
        if (found.status == 200) continue;
        EXPECT_EQ(found.status, 400) << value << found.text;
        const bool names = row.name == "n_probs" || found.text.find(row.name) != std::string::npos;
        EXPECT_TRUE(names) << value << found.text;
      }
    });
}

TEST_F(FieldTable, NumbersBeyondTheirRange_AreNamed) {
  struct Bad {
    const char* field;
    const char* value;
  };
  for (const Bad& bad : {Bad{"temperature", "-0.1"},
                         {"temperature", "1e39"},
                         {"top_k", "-2"},
                         {"top_k", "2147483648"},
                         {"top_p", "1.1"},
                         {"top_p", "-1"},
                         {"min_p", "2"},
                         {"repeat_penalty", "0"},
                         {"n_predict", "-2"},
                         {"n_predict", "1.5"},
                         {"seed", "-2"},
                         {"seed", "9223372036854775808"},
                         {"n_predict", "9223372036854775808"},
                         {"n_probs", "101"},
                         {"n_probs", "-1"},
                         {"id_slot", "4"},
                         {"n_cmpl", "0"},
                         {"n_cmpl", "5"},
                         {"repeat_last_n", "-2"},
                         {"stop", "5"},
                         {"stop", "[\"\"]"},
                         {"stop", "[1]"},
                         {"stream", "1"},
                         {"stream", "\"yes\""},
                         {"t_max_predict_ms", "-2"},
                         {"logit_bias", "[[32000, 1]]"},
                         {"logit_bias", "{\"1\": null}"}}) {
    SCOPED_TRACE(fmt::format("{} {}", bad.field, bad.value));
    const Played played =
        test::play(Route::kCompletion, fmt::format(R"({{"prompt":"hi","{}":{}}})", bad.field, bad.value), server_);
    expect_names({played.status, played.bytes}, kOnCompletion, bad.field);
  }
}

TEST_F(FieldTable, Docs_NameEveryField) {
  std::ifstream in(terrace::test::source_dir() / "docs" / "http.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const FieldRow& row : field_rows()) EXPECT_THAT(text.str(), HasSubstr(fmt::format("`{}`", row.name)));
}

}  // namespace
}  // namespace terrace::serve::api
