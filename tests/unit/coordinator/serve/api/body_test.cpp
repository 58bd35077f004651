// Bodies that are no request at all: each is a 400 that says what is wrong, and where.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/serve/api/information.h"
#include "coordinator/serve/api/json_text.h"
#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api {
namespace {

using testing::HasSubstr;

struct BadBody {
  const char* what;
  std::string body;
  const char* said;
  const char* field;
};

const std::vector<BadBody>& bad_bodies() {
  static const std::vector<BadBody> all = {
      {"nothing", "", "no JSON", ""},
      {"no JSON", "not json", "no JSON", ""},
      {"cut", "{\"prompt\":", "no JSON", "prompt"},
      {"an array", "[1]", "must be a JSON object", ""},
      {"a number", "5", "must be a JSON object", ""},
      {"NaN", "{\"prompt\":\"a\",\"temperature\":NaN}", "no JSON", "temperature"},
      {"Infinity", "{\"temperature\":-Infinity}", "no JSON", "temperature"},
      {"a number that overflows", "{\"temperature\":1e999}", "no JSON", "temperature"},
      {"invalid UTF-8", "{\"prompt\":\"\xff\"}", "no JSON", "prompt"},
      {"half a character", "{\"prompt\":\"\xe2\x82\"}", "no JSON", "prompt"},
      {"a lone surrogate", "{\"prompt\":\"\\ud800\"}", "no JSON", "prompt"},
      {"a key twice", "{\"prompt\":\"a\",\"seed\":1,\"seed\":2}", "stands twice", "seed"},
      {"a key twice within", "{\"prompt\":\"a\",\"logit_bias\":{\"1\":1,\"1\":2}}", "stands twice", "logit_bias"},
      {"two values", "{} {}", "no JSON", ""},
      {"a comment", "{/* */}", "no JSON", ""},
      {"too deep", "{\"stop\":" + std::string(5000, '[') + std::string(5000, ']') + "}", "deeper than 100", "stop"},
      {"deep objects",
       "{\"stop\":" +
           [] {
             std::string text;
             for (int i = 0; i < 200; ++i) text += "{\"a\":";
             return text;
           }(),
       "deeper than 100", "stop"},
  };
  return all;
}

TEST(RequestBody, WhatIsNoRequest_IsSaid) {
  const test::Server server;
  for (const BadBody& bad : bad_bodies()) {
    const test::Played played = test::play(Route::kCompletion, bad.body, server);
    EXPECT_EQ(played.status, 400) << bad.what;
    const auto body = test::Json::parse(played.bytes);
    EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(bad.said)) << bad.what;
    EXPECT_EQ(body["error"].value("param", ""), bad.field) << bad.what;
    EXPECT_EQ(body["error"]["type"], "invalid_request_error") << bad.what;
  }
}

TEST(RequestBody, TooManyValuesOrKeys_AreRefused) {
  std::string values = "{\"prompt\":[0";
  for (std::size_t i = 0; i < kMaxJsonValues; ++i) values += ",0";
  EXPECT_THAT(parse_body(values + "]}").error, HasSubstr("more than 1000000 values"));
  std::string keys = "{\"logit_bias\":{\"k\":0";
  for (std::size_t i = 0; i < kMaxJsonKeys; ++i) keys += fmt::format(",\"{}\":0", i);
  EXPECT_THAT(parse_body(keys + "}}").error, HasSubstr("more than 1024 keys"));
}

TEST(RequestBody, ErrorsOfMessages_HaveTheirShape) {
  const test::Server server;
  const auto body = test::Json::parse(test::play(Route::kMessages, std::string("{}"), server).bytes);
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["request_id"], "req-1");
  EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr("'messages' is required"));
}

TEST(RequestBody, WrongMessages_AreNamedWithTheirPlace) {
  const test::Server server;
  struct Bad {
    Route route;
    const char* body;
    const char* said;
  };
  for (
      const Bad& bad : {
          Bad{Route::kChatCompletions, R"({"messages":[{"content":"x"}]})", "item 0: must be an object with a role"},
          {Route::kChatCompletions, R"({"messages":[5]})", "item 0"},
          {Route::kChatCompletions, R"({"messages":[{"role":"user","content":"a"},{"role":"king","content":""}]})",
           "item 1: role: must be one of"},
          {Route::kChatCompletions, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
           "type \"image_url\" is not supported"},
          {Route::kChatCompletions, R"({"messages":[{"role":"user","content":"a","colour":1}]})", "\"colour\""},
          {Route::kChatCompletions, R"({"messages":[{"role":"user"}]})", "must have a content"},
          {Route::kChatCompletions, R"({"messages":[],"tools":[{"type":"web_search"}]})", "\"web_search\""},
          {Route::kChatCompletions, R"({"messages":[],"tool_choice":"required"})", "there are no tools"},
          {Route::kChatCompletions,
           R"({"messages":[],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}})",
           "\"g\", which is none"},
          {Route::kChatCompletions, R"({"messages":[],"chat_template_kwargs":{"no_such":1}})", "does not read"},
          {Route::kChatCompletions, R"({"messages":[],"max_tokens":1,"n_predict":2})", "contradicts"},
          {Route::kChatCompletions, R"({"messages":[],"top_logprobs":2})", "requires logprobs"},
          {Route::kChatCompletions,
           R"({"messages":[],"tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"}})",
           "'tools' excludes grammars"},
          {Route::kCompletion, R"({"prompt":"a","return_progress":true})", "'return_progress' needs stream"},
          {Route::kTextCompletions, R"({"prompt":"a","echo":true,"logprobs":1})", "'echo' excludes logprobs"},
          {Route::kMessages, R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
           "type \"image\" is not supported"},
          {Route::kMessages, R"({"messages":[],"tools":[{"type":"bash_20250124","name":"bash"}]})",
           "\"bash_20250124\""},
          {Route::kResponses, R"({"input":[{"type":"image_generation_call"}]})", "\"image_generation_call\""},
          {Route::kResponses, R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "\"input_image\""},
          {Route::kResponses, R"({})", "'input' is required"},
          {Route::kCompletion, R"({"n_predict":2})", "'prompt' is required"},
          {Route::kCompletion, R"({"prompt":{"a":1}})", "'prompt' must be a string, an array"},
          {Route::kCompletion, R"({"prompt":[99999999]})", "from 0 to 31999"},
          {Route::kCompletion, R"({"prompt":"a","grammar":"root ::= ("})", "'grammar' cannot be used"},
          {Route::kCompletion, R"({"prompt":"a","json_schema":{"type":"nothing"}})", "'json_schema' cannot be used"},
      }) {
    const test::Played played = test::play(bad.route, std::string(bad.body), server);
    EXPECT_EQ(played.status, 400) << bad.body;
    const auto body = test::Json::parse(played.bytes);
    EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(bad.said)) << bad.body;
  }
}

TEST(RequestBody, PromptBeyondTheContext_IsToldWithBothSizes) {
  const test::Server server;
  for (const char* stream : {"false", "true"}) {
    const test::Played played = test::play(
        Route::kCompletion, fmt::format(R"({{"prompt":"{}","stream":{}}})", std::string(512, 'a'), stream), server);
    EXPECT_EQ(played.status, 400);
    const auto body = test::Json::parse(played.bytes);
    EXPECT_EQ(body["error"]["type"], "exceed_context_size_error");
    EXPECT_EQ(body["error"]["n_prompt_tokens"], 512);
    EXPECT_EQ(body["error"]["n_ctx"], 512);
  }
}

TEST(RequestBody, WithoutATemplate_ChatsAreNotSupported) {
  test::Server server;
  server.context.chat_template = nullptr;
  server.context.no_template = "the file has no chat template";
  const test::Played played =
      test::play(Route::kChatCompletions, std::string(R"({"messages":[{"role":"user","content":"x"}]})"), server);
  EXPECT_EQ(played.status, 501);
  EXPECT_THAT(played.bytes, HasSubstr("the file has no chat template"));
}

}  // namespace
}  // namespace terrace::serve::api
