#include "coordinator/serve/api/information.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/serve/api/api_under_test.h"

namespace terrace::serve::api {
namespace {

using test::Json;
using testing::HasSubstr;

TEST(Tokenize, TextAndBack) {
  const test::Server server;
  EXPECT_EQ(tokenize(R"({"content":"ab<|im_end|>"})", server.context).body, R"({"tokens":[97,98,257]})");
  EXPECT_EQ(
      Json::parse(tokenize(R"({"content":"<|im_end|>","parse_special":false})", server.context).body)["tokens"].size(),
      10U);
  EXPECT_EQ(tokenize("{}", server.context).body, R"({"tokens":[]})");
  EXPECT_EQ(tokenize(R"({"content":"é","with_pieces":true})", server.context).body,
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
  EXPECT_EQ(detokenize(R"({"tokens":[97,98,257]})", server.context).body, R"({"content":"ab<|im_end|>"})");
  EXPECT_EQ(detokenize(R"({"tokens":[32000]})", server.context).status, 400);
  EXPECT_EQ(detokenize(R"({"tokens":["x"]})", server.context).status, 400);
}

TEST(ApplyTemplate, ShowsThePrompt) {
  const test::Server server;
  const Reply reply = apply_template(R"({"messages":[{"role":"user","content":"a"}]})", server.context);
  EXPECT_EQ(Json::parse(reply.body)["prompt"], "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
}

TEST(CountTokens, CountsThePromptOfMessages) {
  const test::Server server;
  const Reply reply = count_tokens(R"({"messages":[{"role":"user","content":"a"}],"system":"s"})", server.context);
  const auto prompt = server.context.tokenizer->encode(
      "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
      {.parse_special = true});
  EXPECT_EQ(Json::parse(reply.body)["input_tokens"], prompt->size());
}

TEST(Slots, BusyAndIdle) {
  const test::Server server;
  SchedulerStatus status;
  status.context = 512;
  status.slots.resize(2);
  status.slots[0].state = SlotState::kDecoding;
  status.slots[0].decoded = 5;
  status.slots[0].remaining = kUnlimited;
  status.slots[1].id = 1;
  const Json list = Json::parse(slots(server.context, status, true).body);
  EXPECT_EQ(list[0]["is_processing"], true);
  EXPECT_EQ(list[0]["next_token"][0]["n_remain"], -1);
  EXPECT_EQ(list[1], Json::parse(R"({"id": 1, "n_ctx": 512, "speculative": false, "is_processing": false})"));
  status.slots[1].state = SlotState::kWaiting;
  EXPECT_EQ(slots(server.context, status, false).status, 200);
  const Reply none = slots(server.context, status, true);
  EXPECT_EQ(none.status, 503);
  EXPECT_FALSE(none.retry_after_s.has_value());
}

TEST(SlotCommands, AreReadAndAnswered) {
  const test::Server server;
  const ReadSlotCommand save = read_slot_command("1", "save", R"({"filename":"a.bin"})", server.context);
  ASSERT_TRUE(save.command);
  EXPECT_EQ(save.command->slot, 1U);
  EXPECT_EQ(save.command->file_name, "a.bin");
  EXPECT_EQ(
      Json::parse(slot_done(*save.command, {.n_tokens = 3, .n_bytes = 9, .milliseconds = 1.5}).body),
      Json::parse(R"({"id_slot": 1, "filename": "a.bin", "n_saved": 3, "n_written": 9, "timings": {"save_ms": 1.5}})"));
  const ReadSlotCommand erase = read_slot_command("0", "erase", "", server.context);
  ASSERT_TRUE(erase.command);
  EXPECT_EQ(slot_done(*erase.command, {.n_tokens = 3}).body, R"({"id_slot":0,"n_erased":3})");
}

TEST(SlotCommands, WhatIsWrong_IsRefused) {
  test::Server server;
  for (const char* name : {"../a", "/etc/x", ".hidden", "", "a b", "a/b"}) {
    const ReadSlotCommand read = read_slot_command("0", "save", Json{{"filename", name}}.dump(), server.context);
    ASSERT_TRUE(read.refusal) << name;
    EXPECT_EQ(read.refusal->status, 400);
    EXPECT_THAT(read.refusal->body, HasSubstr("filename"));
  }
  for (const char* id : {"4", "-1", "x", "", "1x", "99999999999999"})
    EXPECT_EQ(read_slot_command(id, "erase", "", server.context).refusal->status, 400) << id;
  EXPECT_EQ(read_slot_command("0", "burn", "", server.context).refusal->status, 400);
  EXPECT_EQ(read_slot_command("0", "save", "{}", server.context).refusal->status, 400);
  server.context.slot_files = false;
  EXPECT_EQ(read_slot_command("0", "save", R"({"filename":"a"})", server.context).refusal->status, 501);
}

TEST(Props, TellWhatTheTemplateCan) {
  const test::Server server;
  const Json body = Json::parse(props(server.context).body);
  EXPECT_EQ(body["chat_template_caps"]["supports_tools"], true);
  EXPECT_EQ(body["default_generation_settings"]["n_ctx"], 512);
  EXPECT_EQ(body["total_slots"], 4);
  EXPECT_EQ(body["eos_token"], "<|im_end|>");
}

TEST(ServerErrors, HaveTheTypeOfTheirStatus) {
  EXPECT_EQ(Json::parse(server_error(401, "Invalid API Key").body),
            Json::parse(R"({"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}})"));
  EXPECT_EQ(server_error(503, "Loading model").retry_after_s.has_value(), true);
  EXPECT_EQ(Json::parse(server_error(404, "x", dialect_of("/v1/messages/count_tokens")).body)["error"]["type"],
            "not_found_error");
}

}  // namespace
}  // namespace terrace::serve::api
