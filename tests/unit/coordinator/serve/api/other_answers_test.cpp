// What the scheduler tells becomes JSON and event streams, for the APIs beside chat.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/serve/api/answers_testing.h"

namespace terrace::serve::api {
namespace other_answers_test {

using namespace answers_testing;
using test::events_of;
using testing::ElementsAre;
using testing::HasSubstr;

class OtherAnswers : public Answers {};

// ---- /v1/completions and /completion

TEST_F(OtherAnswers, TextStream_HasPiecesThenUsageAndDone) {
  const auto events = events_of(text({{"stream", true}}).bytes);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["choices"][0]["text"], "Hello");
  EXPECT_EQ(events[2]["choices"][0]["text"], "");
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(OtherAnswers, Echo_BeginsTheTextWithThePrompt) {
  EXPECT_EQ(Json::parse(text({{"echo", true}}).bytes)["choices"][0]["text"], "hiHello world");
  const auto events = events_of(text({{"echo", true}, {"stream", true}}).bytes);
  EXPECT_EQ(events[0]["choices"][0]["text"], "hi");
  EXPECT_EQ(events[1]["choices"][0]["text"], "Hello");
}

TEST_F(OtherAnswers, ManyPromptsAndChoices_AreInOrder) {
  const Json body = Json::parse(text({{"prompt", {"a", "bc"}}, {"n", 2}}).bytes);
  ASSERT_EQ(body["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  const Json list = Json::parse(text({{"prompt", {"a", "bc"}}}, {}, Route::kCompletion).bytes);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1]["prompt"], "bc");
}

TEST_F(OtherAnswers, PromptForms_BecomeTokens) {
  const auto prompts = [&](const Json& prompt) {
    const Json body{{"prompt", prompt}};
    const ReadGeneration read = read_generation(Route::kCompletion, body.dump(), server_.context, "");
    std::vector<std::vector<std::int32_t>> ids;
    if (read.generation)
      for (const Request& request : read.generation->requests) ids.push_back(request.prompt);
    return ids;
  };
  EXPECT_THAT(prompts("ab"), ElementsAre(ElementsAre(97, 98)));
  EXPECT_THAT(prompts({97, 98}), ElementsAre(ElementsAre(97, 98)));
  EXPECT_THAT(prompts(Json::parse(R"(["ab", 99, "d"])")), ElementsAre(ElementsAre(97, 98, 99, 100)));
  EXPECT_THAT(prompts(Json::parse(R"([[97], "b", ["c", 100]])")),
              ElementsAre(ElementsAre(97), ElementsAre(98), ElementsAre(99, 100)));
}

TEST_F(OtherAnswers, CompletionStream_HasNoDone) {
  const auto events = events_of(text({{"stream", true}}, {}, Route::kCompletion).bytes);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["tokens"], Json::array({'H'}));
  EXPECT_EQ(events[0]["stop"], false);
  EXPECT_EQ(events[2]["stop"], true);
  EXPECT_EQ(events[2]["content"], "");
  EXPECT_EQ(events[2]["stop_type"], "limit");
}

TEST_F(OtherAnswers, CompletionEnds_AreTold) {
  struct Row {
    EndReason reason;
    const char* type;
    bool truncated;
  };
  for (const Row& row : {Row{EndReason::kEos, "eos", false},
                         {EndReason::kLimit, "limit", false},
                         {EndReason::kContext, "limit", true},
                         {EndReason::kStop, "word", false}}) {
    const Script script{.reason = row.reason, .stopping_word = row.reason == EndReason::kStop ? "x" : ""};
    const Json body = Json::parse(text(Json::object(), script, Route::kCompletion).bytes);
    EXPECT_EQ(body["stop_type"], row.type);
    EXPECT_EQ(body["truncated"], row.truncated);
    EXPECT_EQ(body["stopping_word"], script.stopping_word);
  }
}

TEST_F(OtherAnswers, TimeLimit_EndsAtALineBreak) {
  const Script script{.pieces = {"a", "b", "c\n", "d", "e\n"}};
  const Played played = text({{"t_max_predict_ms", 15}}, script, Route::kCompletion);
  EXPECT_EQ(played.n_cancelled, 1U);
  const Json body = Json::parse(played.bytes);
  EXPECT_EQ(body["content"], "abc\n");
  EXPECT_EQ(body["stop_type"], "limit");
}

TEST_F(OtherAnswers, ResponseFields_AreChosenByPath) {
  const Json body =
      Json::parse(text({{"response_fields", {"content", "timings/predicted_n"}}}, {}, Route::kCompletion).bytes);
  EXPECT_EQ(body, Json::parse(R"({"content": "Hello world", "timings/predicted_n": 2})"));
}

// ---- /v1/messages

TEST_F(OtherAnswers, Messages_HaveBlocksAndAReason) {
  const Json tools = Json::parse(R"([{"name": "f", "input_schema": {"type": "object"}}])");
  const Json fields{
      {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"max_tokens", 9}, {"tools", tools}};
  Script script = kCall;
  script.pieces.insert(script.pieces.begin(), "<think>Hm</think>");
  const Json body = Json::parse(test::play(Route::kMessages, fields, server_, script).bytes);
  EXPECT_EQ(body["type"], "message");
  ASSERT_EQ(body["content"].size(), 3U);
  EXPECT_EQ(body["content"][0]["thinking"], "Hm");
  EXPECT_EQ(body["content"][1]["text"], "I call.");
  EXPECT_EQ(body["content"][2]["input"], Json::parse(R"({"x": 1})"));
  EXPECT_EQ(body["stop_reason"], "tool_use");
}

TEST_F(OtherAnswers, MessagesStream_TellsEachBlock) {
  Json fields{{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"max_tokens", 9}, {"stream", true}};
  fields["tools"] = Json::parse(R"([{"name": "f", "input_schema": {"type": "object"}}])");
  std::vector<std::string> names;
  const auto events = events_of(test::play(Route::kMessages, fields, server_, kCall).bytes);
  for (const Json& event : events) {
    names.push_back(event["event"]);
    EXPECT_EQ(event["event"], event["data"]["type"]);
  }
  EXPECT_THAT(names, ElementsAre("message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                 "content_block_start", "content_block_delta", "content_block_delta",
                                 "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[5]["data"]["delta"], Json::parse(R"({"type": "input_json_delta", "partial_json": "{\"x\""})"));
  EXPECT_EQ(events[8]["data"]["delta"]["stop_reason"], "tool_use");
}

TEST_F(OtherAnswers, MessagesErrorAfterTheFirstByte_IsAnErrorEvent) {
  const Json fields{{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"stream", true}};
  const auto events = events_of(test::play(Route::kMessages, fields, server_, {.fail_after = 1}).bytes);
  EXPECT_EQ(events.back()["event"], "error");
  EXPECT_EQ(events.back()["data"]["error"]["type"], "api_error");
}

TEST_F(OtherAnswers, AnthropicBlocks_BecomeMessages) {
  const Json fields = Json::parse(R"({"system": [{"type": "text", "text": "S"}], "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""}, {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}]},
        {"type": "text", "text": "c"}]}]})");
  const ReadGeneration read = read_generation(Route::kMessages, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation) << read.refusal->body;
  EXPECT_EQ(*server_.context.tokenizer->decode(read.generation->requests[0].prompt, {}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<think>t</think>"
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call><|im_end|>\n"
            "<|im_start|>tool\nr<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
}

// ---- /v1/responses

TEST_F(OtherAnswers, Responses_HaveItems) {
  const Json tools = Json::parse(R"([{"type": "function", "name": "f", "parameters": {"type": "object"}}])");
  const Json body = Json::parse(
      test::play(Route::kResponses, Json{{"input", "hi"}, {"tools", tools}, {"metadata", {{"a", "b"}}}}, server_, kCall)
          .bytes);
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  ASSERT_EQ(body["output"].size(), 2U);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "I call.");
  EXPECT_EQ(body["output"][1]["type"], "function_call");
  EXPECT_EQ(body["output"][1]["arguments"], "{\"x\": 1}");
  EXPECT_EQ(body["metadata"]["a"], "b");
}

TEST_F(OtherAnswers, ResponsesStream_IsNumberedAndEndsWithTheWhole) {
  const auto events =
      events_of(test::play(Route::kResponses, Json{{"input", "hi"}, {"stream", true}}, server_, {}).bytes);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < events.size(); ++i) {
    names.push_back(events[i]["event"]);
    EXPECT_EQ(events[i]["data"]["sequence_number"], i);
  }
  EXPECT_THAT(names, ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                                 "response.content_part.added", "response.output_text.delta",
                                 "response.output_text.delta", "response.output_text.done",
                                 "response.content_part.done", "response.output_item.done", "response.incomplete"));
  const Json last = events.back()["data"]["response"];
  EXPECT_EQ(last["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(last["output"][0]["id"], events[4]["data"]["item_id"]);
}

TEST_F(OtherAnswers, ResponsesItems_BecomeMessages) {
  const Json fields = Json::parse(R"({"instructions": "S", "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "reasoning", "id": "1", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\":1}"},
      {"type": "function_call_output", "call_id": "1", "output": "r"}]})");
  const ReadGeneration read = read_generation(Route::kResponses, fields.dump(), server_.context, "");
  ASSERT_TRUE(read.generation) << read.refusal->body;
  EXPECT_EQ(*server_.context.tokenizer->decode(read.generation->requests[0].prompt, {}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>t</think>"
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call><|im_end|>\n"
            "<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace other_answers_test
}  // namespace terrace::serve::api
