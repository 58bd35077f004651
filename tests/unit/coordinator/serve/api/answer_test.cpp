// What the scheduler tells becomes JSON and event streams: chat, and errors of every API.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/serve/api/answers_testing.h"

namespace terrace::serve::api {
namespace answer_test {

using namespace answers_testing;
using test::events_of;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- /v1/chat/completions

TEST_F(Answers, ChatStream_BeginsWithTheRoleAndEndsWithDone) {
  const Played played = chat({{"stream", true}});
  EXPECT_EQ(played.content_type, "text/event-stream");
  const auto events = events_of(played.bytes);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::parse(R"({"role": "assistant", "content": null})"));
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"content": "Hello"})"));
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::parse(R"({"content": " world"})"));
  EXPECT_EQ(events[3]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(events[3].contains("timings"));
  EXPECT_EQ(events[4], "[DONE]");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_EQ(events[i]["id"].get<std::string>().size(), std::string("chatcmpl-").size() + 32);
    EXPECT_EQ(events[i]["choices"][0]["finish_reason"].is_null(), i < 3);
  }
}

TEST_F(Answers, ChatStreamWithUsage_HasOneMoreChunk) {
  const auto events = events_of(chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}).bytes);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_FALSE(events[3].contains("timings"));
  EXPECT_EQ(events[4]["choices"], Json::array());
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(Answers, ChatStream_TellsProgressAndTimingsAndLogprobs) {
  const auto events = events_of(chat({{"stream", true},
                                      {"return_progress", true},
                                      {"timings_per_token", true},
                                      {"logprobs", true},
                                      {"top_logprobs", 1}})
                                    .bytes);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["prompt_progress"], Json::parse(R"({"total": 4, "cache": 1, "processed": 1, "time_ms": 0})"));
  EXPECT_EQ(events[2]["prompt_progress"]["processed"], 4);
  EXPECT_EQ(events[3]["timings"]["predicted_n"], 1);
  EXPECT_EQ(events[3]["choices"][0]["logprobs"]["content"][0]["token"], "H");
  EXPECT_EQ(events[3]["choices"][0]["logprobs"]["content"][0]["bytes"], Json::array({72}));
  EXPECT_EQ(events[3]["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size(), 1U);
}

TEST_F(Answers, Chat_HasTheWholeMessage) {
  const Played played = chat({{"logprobs", true}, {"seed", 7}}, {.reason = EndReason::kEos});
  EXPECT_EQ(played.content_type, "application/json; charset=utf-8");
  const Json body = Json::parse(played.bytes);
  EXPECT_EQ(body["choices"][0]["message"], Json::parse(R"({"role": "assistant", "content": "Hello world"})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"].size(), 2U);
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"], Json::array());
  EXPECT_EQ(body["system_fingerprint"], "b1-test");
  EXPECT_EQ(body["usage"]["total_tokens"],
            body["usage"]["prompt_tokens"].get<int>() + body["usage"]["completion_tokens"].get<int>());
  EXPECT_FALSE(body.contains("seed"));
}

TEST_F(Answers, ChatWithoutSeed_TellsTheOneThatWasUsed) {
  const ReadGeneration read = read_generation(Route::kChatCompletions, R"({"messages":[]})", server_.context, "");
  const Json body = Json::parse(chat(Json::object()).bytes);
  ASSERT_TRUE(read.generation);
  EXPECT_EQ(body["seed"], read.generation->requests[0].sampling.seed);
}

TEST_F(Answers, TwoChoices_AreToldByIndexAndCountThePromptOnce) {
  const ReadGeneration read =
      read_generation(Route::kChatCompletions, R"({"messages":[],"n":2,"seed":5})", server_.context, "");
  ASSERT_TRUE(read.generation);
  ASSERT_EQ(read.generation->requests.size(), 2U);
  EXPECT_EQ(read.generation->requests[0].sampling.seed, 5U);
  EXPECT_EQ(read.generation->requests[1].sampling.seed, 6U);
  const Json one = Json::parse(chat(Json::object()).bytes);
  const Json two = Json::parse(chat({{"n", 2}}).bytes);
  ASSERT_EQ(two["choices"].size(), 2U);
  EXPECT_EQ(two["choices"][1]["index"], 1);
  EXPECT_EQ(two["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
  EXPECT_EQ(two["usage"]["completion_tokens"], 4);
  const auto events = events_of(chat({{"n", 2}, {"stream", true}}).bytes);
  ASSERT_EQ(events.size(), 9U);  // a role, two pieces and an end of each; [DONE] once
  EXPECT_EQ(events[8], "[DONE]");
}

TEST_F(Answers, Reasoning_IsSplitOff) {
  const Script script{.pieces = {"<thi", "nk>Hm", ".\n</think>\n\nYes"}, .reason = EndReason::kEos};
  const Json message = Json::parse(chat(Json::object(), script).bytes)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "Yes");
  const Json whole = Json::parse(chat({{"reasoning_format", "none"}}, script).bytes)["choices"][0]["message"];
  EXPECT_EQ(whole["content"], "<think>Hm.\n</think>\n\nYes");
  const auto events = events_of(chat({{"stream", true}}, script).bytes);
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"reasoning_content": "Hm"})"));
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::parse(R"({"reasoning_content": "."})"));
  EXPECT_EQ(events[3]["choices"][0]["delta"], Json::parse(R"({"content": "Yes"})"));
}

// The marks count: they are tokens that were made for it.
TEST_F(Answers, ReasoningTokens_AreToldWhereThereWereAny) {
  const Script script{.pieces = {"<think>", "Hm", ".", "</think>", "Yes", "!"}, .reason = EndReason::kEos};
  const Json usage = Json::parse(chat(Json::object(), script).bytes)["usage"];
  EXPECT_EQ(usage["completion_tokens"], 6);
  EXPECT_EQ(usage["completion_tokens_details"], Json::parse(R"({"reasoning_tokens": 4})"));
  const auto events = events_of(chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}, script).bytes);
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
  EXPECT_FALSE(Json::parse(chat(Json::object(), {}).bytes)["usage"].contains("completion_tokens_details"));
  EXPECT_FALSE(
      Json::parse(chat({{"reasoning_format", "none"}}, script).bytes)["usage"].contains("completion_tokens_details"));
  const Json response = Json::parse(play(Route::kResponses, Json{{"input", "Hi"}}, server_, script).bytes);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 4);
}

TEST_F(Answers, ReasoningThatTheTemplateBegins_IsSplitOff) {
  const Script script{.pieces = {"Hm.", "</think>Yes"}, .reason = EndReason::kEos};
  const Json kwargs{{"chat_template_kwargs", {{"enable_thinking", true}}}};
  const Json message = Json::parse(chat(kwargs, script).bytes)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "Yes");
}

TEST_F(Answers, ToolCall_IsToldWholeAndAsDeltas) {
  const Json choice = Json::parse(chat({{"tools", kTools}}, kCall).bytes)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I call.");
  const Json call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"], Json::parse(R"({"name": "f", "arguments": "{\"x\": 1}"})"));
  EXPECT_THAT(call["id"].get<std::string>(), testing::StartsWith("call_"));

  const auto events = events_of(chat({{"tools", kTools}, {"stream", true}}, kCall).bytes);
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "I call.");
  const Json first = events[2]["choices"][0]["delta"]["tool_calls"][0];
  EXPECT_EQ(first["index"], 0);
  EXPECT_EQ(first["function"], Json::parse(R"({"name": "f", "arguments": ""})"));
  EXPECT_EQ(events[3]["choices"][0]["delta"],
            Json::parse(R"({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\""}}]})"));
  EXPECT_EQ(events[4]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"], ": 1}");
  EXPECT_EQ(events[5]["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(Answers, CallWithoutTools_IsContent) {
  const Json message = Json::parse(chat(Json::object(), kCall).bytes)["choices"][0]["message"];
  EXPECT_THAT(message["content"].get<std::string>(), HasSubstr("<tool_call>"));
  EXPECT_FALSE(message.contains("tool_calls"));
}

TEST_F(Answers, WithoutParallelCalls_TheSecondEndsTheReply) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const Script script{.pieces = {call, call, "more"}, .reason = EndReason::kEos};
  const Played played = chat({{"tools", kTools}, {"parallel_tool_calls", false}}, script);
  EXPECT_EQ(played.n_cancelled, 1U);
  const Json choice = Json::parse(played.bytes)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(Answers, ForcedCall_IsBegunByThePromptAndHeldByAGrammar) {
  for (const Json& choice : {Json("required"), Json::parse(R"({"type": "function", "function": {"name": "f"}})")}) {
    const Json fields{{"messages", Json::array()}, {"tools", kTools}, {"tool_choice", choice}};
    const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
    ASSERT_TRUE(read.generation) << read.refusal->body;
    const Request& request = read.generation->requests[0];
    EXPECT_NE(request.grammar, nullptr);
    const auto prompt = server_.context.tokenizer->decode(request.prompt, {});
    EXPECT_TRUE(prompt->ends_with("<|im_start|>assistant\n<tool_call>\n")) << *prompt;
    const Script script{.pieces = {"{\"name\": \"f\", \"arg", "uments\": {\"x\": 3}}"}, .reason = EndReason::kEos};
    const Json message =
        Json::parse(chat({{"tools", kTools}, {"tool_choice", choice}}, script).bytes)["choices"][0]["message"];
    EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"x\": 3}");
    EXPECT_TRUE(message["content"].is_null());
  }
}

TEST_F(Answers, ForcedCall_KeepsTheReferencesOfItsSchema) {
  const Json fields = Json::parse(R"({"messages": [], "tool_choice": "required", "tools": [
      {"type": "function", "function": {"name": "g"}},
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}},
       "required": ["x"], "additionalProperties": false, "$defs": {"n": {"enum": [7]}}}}}]})");
  const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation) << read.refusal->body;
}

TEST_F(Answers, TemplateWithoutTools_HasThemInTheSystemMessage) {
  const char* const source =
      "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '\n' }}{% endfor %}";
  const auto plain = text::jinja::Template::compile(source);
  server_.context.chat_template = &*plain;
  server_.context.chat_template_source = source;
  const Json fields{{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"tools", kTools}};
  const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation) << read.refusal->body;
  const auto prompt = server_.context.tokenizer->decode(read.generation->requests[0].prompt, {});
  EXPECT_THAT(*prompt, testing::StartsWith("<|im_start|>system\nYou may call these functions"));
  EXPECT_EQ(Json::parse(chat({{"tools", kTools}}, kCall).bytes)["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(Answers, ConstrainedTextAfterAnOpenThought_EndsTheThoughtFirst) {
  const Json fields{{"messages", Json::array()},
                    {"chat_template_kwargs", {{"enable_thinking", true}}},
                    {"response_format", {{"type", "json_object"}}}};
  const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation);
  const auto prompt = server_.context.tokenizer->decode(read.generation->requests[0].prompt, {});
  EXPECT_TRUE(prompt->ends_with("<think>\n\n</think>\n\n")) << *prompt;
}

TEST_F(Answers, LastMessageOfTheAssistant_IsContinued) {
  const Json fields =
      Json::parse(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "I th"}]})");
  const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation);
  const auto prompt = server_.context.tokenizer->decode(read.generation->requests[0].prompt, {});
  EXPECT_EQ(*prompt, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nI th");
}

TEST_F(Answers, MarksThatSomebodySaid_AreText) {
  const Json fields = Json::parse(R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})");
  const ReadGeneration read = read_generation(Route::kChatCompletions, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation);
  const auto& ids = read.generation->requests[0].prompt;
  EXPECT_EQ(std::ranges::count(ids, test::kEndToken), 1);  // the template's own
}

// ---- errors

TEST_F(Answers, ErrorBeforeTheFirstByte_IsAnHttpError) {
  for (const bool stream : {false, true}) {
    const Played played = chat({{"stream", stream}}, {.fail_after = 0});
    EXPECT_EQ(played.status, 500);
    EXPECT_EQ(played.content_type, "application/json; charset=utf-8");
    EXPECT_TRUE(played.finished);
    EXPECT_EQ(Json::parse(played.bytes)["error"]["type"], "server_error");
  }
}

TEST_F(Answers, ErrorAfterTheFirstByte_IsTheLastEvent) {
  const Script script{.fail_after = 1};
  for (const Route route : {Route::kChatCompletions, Route::kTextCompletions, Route::kCompletion}) {
    const Json fields{{"stream", true}};
    const Played played = route == Route::kChatCompletions ? chat(fields, script) : text(fields, script, route);
    EXPECT_EQ(played.status, 200);
    EXPECT_TRUE(played.finished);
    const auto events = events_of(played.bytes);
    EXPECT_EQ(events.back()["error"]["code"], 500);
    EXPECT_THAT(events.back()["error"]["message"].get<std::string>(), HasSubstr("row 7"));
  }
}

TEST_F(Answers, ErrorOfAWholeAnswerAfterTokens_IsAnHttpError) {
  const Played played = chat(Json::object(), {.fail_after = 1});
  EXPECT_EQ(played.status, 500);
  EXPECT_EQ(played.parts.size(), 1U);
}

// A node was found to compute wrong: what was told before is void.
TEST_F(Answers, WholeAnswerThatIsToldAgain_IsThatOfTheSecondTelling) {
  const auto twice = [](Script script) {
    script.restart_after = script.pieces.size() - 1;
    return script;
  };
  const Script thought{.pieces = {"<thi", "nk>Hm", ".\n</think>\n\nYes"}, .reason = EndReason::kEos};
  const Json with_tools{{"tools", kTools}}, with_logprobs{{"logprobs", true}, {"n", 2}};
  EXPECT_EQ(chat(with_tools, twice(kCall)).bytes, chat(with_tools, kCall).bytes);
  EXPECT_EQ(chat(with_logprobs, twice({})).bytes, chat(with_logprobs).bytes);
  EXPECT_EQ(chat(Json::object(), twice(thought)).bytes, chat(Json::object(), thought).bytes);
  for (const Route route : {Route::kTextCompletions, Route::kCompletion})
    EXPECT_EQ(text(Json::object(), twice({}), route).bytes, text(Json::object(), {}, route).bytes);
}

TEST_F(Answers, FullQueue_MayBeTriedAgainAndAStoppingServerNot) {
  for (const auto& [code, retry] : {std::pair{ErrorCode::kBusy, true}, {ErrorCode::kRefused, false}}) {
    ReadGeneration read = read_generation(Route::kCompletion, R"({"prompt":"hi"})", server_.context, "");
    ASSERT_TRUE(read.generation);
    const Output output = read.generation->answer->on_error(0, Error(code, "no"), {});
    EXPECT_TRUE(output.finished);
    EXPECT_EQ(read.generation->answer->status(), 503);
    EXPECT_EQ(read.generation->answer->retry_after_s().has_value(), retry);
    EXPECT_EQ(read.generation->answer->undone(), !retry);
  }
}

TEST_F(Answers, StepRefusedBehindThePrompt_IsNothingToTryAgain) {
  Timings so_far;
  so_far.prompt_n = 2;
  for (const ErrorCode code : {ErrorCode::kBusy, ErrorCode::kRefused}) {
    ReadGeneration read = read_generation(Route::kCompletion, R"({"prompt":"hi"})", server_.context, "");
    ASSERT_TRUE(read.generation);
    EXPECT_TRUE(read.generation->answer->on_error(0, Error(code, "box1:9000: no"), so_far).finished);
    EXPECT_EQ(read.generation->answer->status(), 503);
    EXPECT_FALSE(read.generation->answer->retry_after_s());
    EXPECT_FALSE(read.generation->answer->undone());  // with neither, the answer says x-should-retry: false
  }
}

TEST_F(Answers, StoppingServer_SaysWhetherWorkWasDone) {
  for (const bool had_slot : {false, true}) {
    ReadGeneration read = read_generation(Route::kCompletion, R"({"prompt":"hi"})", server_.context, "");
    ASSERT_TRUE(read.generation);
    End end;
    end.reason = EndReason::kStopping;
    if (had_slot) end.slot = 0;
    read.generation->answer->on_end(0, end);
    EXPECT_EQ(read.generation->answer->status(), 503);
    EXPECT_EQ(read.generation->answer->undone(), !had_slot);
  }
}

TEST_F(Answers, ServerThatStops_EndsStreamsWithAnError) {
  const auto events = events_of(chat({{"stream", true}}, {.reason = EndReason::kStopping}).bytes);
  EXPECT_EQ(events.back()["error"]["type"], "unavailable_error");
}

}  // namespace answer_test
}  // namespace terrace::serve::api
