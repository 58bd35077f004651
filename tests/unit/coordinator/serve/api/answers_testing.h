// What the scheduler tells becomes an answer: each API's, of what a test plays.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api::answers_testing {

using test::Json;
using test::Played;
using test::Script;

class Answers : public testing::Test {
 protected:
  Played chat(Json fields, const Script& script = {}) {
    Json body{{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
    body.update(fields);
    return test::play(Route::kChatCompletions, body, server_, script);
  }
  Played text(Json fields, const Script& script = {}, Route route = Route::kTextCompletions) {
    Json body{{"prompt", "hi"}};
    body.update(fields);
    return test::play(route, body, server_, script);
  }
  test::Server server_;
};

inline const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "g"}}])");
inline const Script kCall{
    .pieces = {"I call.\n", "<tool_", "call>{\"name\": \"f\", \"arguments\": {\"x\"", ": 1}}", "</tool_call>"},
    .reason = EndReason::kEos};

}  // namespace terrace::serve::api::answers_testing
