// Which method and path is answered by what, with a scheduler that says what a test wants.
#include "coordinator/serve/routes/routes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/serve/routes/replies.h"
#include "tests/unit/coordinator/serve/routes/fakes.h"

namespace terrace::serve {
namespace {

using nlohmann::json;

class RoutesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_.context = &context_;
    backend_.scheduler = &scheduler_;
    backend_.owners = [this] { return std::shared_ptr<const legs::OwnerTable>(std::shared_ptr<void>(), &owners_); };
    backend_.expert_use = &expert_use_;
    backend_.slot_dir = "/slots";
    backend_.metrics = [] {
      http::Reply reply;
      reply.body = "metrics";
      return reply;
    };
    context_.n_slots = 2;
    context_.slot_files = true;
  }

  http::Reply ask(const std::string& method, const std::string& path, http::Headers query = {}, std::string body = "") {
    const http::Router router = make_router(backend_);
    http::Request request;
    auto match = router.find(method, path);
    if (match.route == nullptr) {
      ADD_FAILURE() << "no route for " << method << " " << path;
      return {.status = 0};
    }
    request.method = method;
    request.path = path;
    request.query = std::move(query);
    request.parameters = match.parameters;
    request.body = std::move(body);
    const auto exchange = std::make_shared<FakeExchange>(std::move(request));
    match.route->handler(exchange);
    return exchange->replied.value_or(http::Reply{.status = 0});
  }

  FakeScheduler scheduler_;
  api::Context context_;
  legs::OwnerTable owners_{1, {"host"}, 1, 2, {0, 0}};
  legs::ExpertUse expert_use_{1, 2};
  Backend backend_;
};

TEST_F(RoutesTest, EachRouteOfTheIssue_IsThere_AndOnlyHealthIsOpen) {
  const http::Router router = make_router(backend_);
  const std::pair<const char*, const char*> routes[] = {{"GET", "/health"},
                                                        {"GET", "/v1/health"},
                                                        {"GET", "/health/live"},
                                                        {"GET", "/health/ready"},
                                                        {"GET", "/v1/models"},
                                                        {"GET", "/models"},
                                                        {"GET", "/props"},
                                                        {"GET", "/slots"},
                                                        {"GET", "/metrics"},
                                                        {"GET", "/tiers"},
                                                        {"POST", "/v1/chat/completions"},
                                                        {"POST", "/v1/completions"},
                                                        {"POST", "/completion"},
                                                        {"POST", "/completions"},
                                                        {"POST", "/v1/responses"},
                                                        {"POST", "/v1/messages"},
                                                        {"POST", "/v1/messages/count_tokens"},
                                                        {"POST", "/tokenize"},
                                                        {"POST", "/detokenize"},
                                                        {"POST", "/apply-template"},
                                                        {"POST", "/slots/0"},
                                                        {"POST", "/chat/completions"}};
  for (const auto& [method, path] : routes) {
    const auto match = router.find(method, path);
    ASSERT_NE(match.route, nullptr) << method << " " << path;
    EXPECT_EQ(match.route->needs_key, std::string_view(path).find("health") == std::string_view::npos) << path;
    EXPECT_EQ(match.route->while_unavailable, std::string_view(path) == "/health/live") << path;
  }
}

TEST_F(RoutesTest, Page_IsOpen_AlsoWhileTheModelLoads_UnderItsPolicy) {
  const http::Router router = make_router(backend_);
  const auto match = router.find("GET", "/");
  ASSERT_NE(match.route, nullptr);
  EXPECT_FALSE(match.route->needs_key);
  EXPECT_TRUE(match.route->while_unavailable);
  const http::Reply page = ask("GET", "/");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  ASSERT_FALSE(page.headers.empty());
  EXPECT_EQ(page.headers[0].first, "Content-Security-Policy");
}

TEST_F(RoutesTest, Tiers_HaveTheMapOfExperts_UnlessItIsNotWanted) {
  expert_use_.add(0, 1, 3);
  EXPECT_EQ(json::parse(ask("GET", "/tiers").body).at("experts").at("use"), json::parse("[[0,3]]"));
  EXPECT_FALSE(json::parse(ask("GET", "/tiers", {{"experts", "0"}}).body).contains("experts"));
}

TEST_F(RoutesTest, WhatIsNotThere_Is501ByName) {
  const std::pair<const char*, const char*> missing[] = {{"/v1/embeddings", "embeddings"},
                                                         {"/v1/rerank", "reranking"},
                                                         {"/infill", "infill"},
                                                         {"/v1/chat/completions/control", "control"},
                                                         {"/v1/chat/completions/input_tokens", "count_tokens"},
                                                         {"/v1/responses/input_tokens", "count_tokens"},
                                                         {"/lora-adapters", "LoRA"},
                                                         {"/v1/audio/transcriptions", "audio"}};
  for (const auto& [path, name] : missing) {
    const http::Reply reply = ask("POST", path);
    EXPECT_EQ(reply.status, 501) << path;
    const json error = json::parse(reply.body).at("error");
    EXPECT_EQ(error.at("type"), "not_supported_error");
    EXPECT_NE(error.at("message").get<std::string>().find(name), std::string::npos);
  }
}

TEST_F(RoutesTest, Slots_AreSavedBelowTheFolder_RestoredAndErased) {
  const http::Reply saved = ask("POST", "/slots/1", {{"action", "save"}}, R"({"filename":"talk"})");
  EXPECT_EQ(saved.status, 200) << saved.body;
  ASSERT_EQ(scheduler_.saved.size(), 1U);
  EXPECT_EQ(scheduler_.saved[0].first, 1U);
  EXPECT_EQ(scheduler_.saved[0].second, "/slots/talk");
  EXPECT_EQ(ask("POST", "/slots/1", {{"action", "restore"}}, R"({"filename":"talk"})").status, 404);
  EXPECT_EQ(ask("POST", "/slots/0", {{"action", "erase"}}).status, 200);
  EXPECT_EQ(ask("POST", "/slots/0", {{"action", "burn"}}).status, 400);
  EXPECT_EQ(ask("POST", "/slots/0", {{"action", "save"}}, R"({"filename":"../talk"})").status, 400);
  context_.slot_files = false;
  EXPECT_EQ(ask("POST", "/slots/1", {{"action", "save"}}, R"({"filename":"talk"})").status, 501);
}

TEST_F(RoutesTest, SlotsWithNoneIdle_FailOnlyWhereAskedTo) {
  scheduler_.told.slots.resize(1);
  scheduler_.told.slots[0].state = SlotState::kDecoding;
  EXPECT_EQ(ask("GET", "/slots").status, 200);
  EXPECT_EQ(ask("GET", "/slots", {{"fail_on_no_slot", "1"}}).status, 503);
}

TEST(Replies, ErrorOfTheServer_HasTheFormOfItsClients_AndNoAdvice) {
  const http::Reply open_ai = error_reply(503, "Loading model", "/v1/chat/completions");
  EXPECT_EQ(json::parse(open_ai.body).at("error").at("message"), "Loading model");
  EXPECT_TRUE(open_ai.headers.empty());
  EXPECT_EQ(json::parse(error_reply(401, "no", "/v1/messages").body).at("type"), "error");
}

TEST(Replies, FaultAfterWorkWasDone_IsNotToBeSentAgain) {
  const http::Headers no_retry = {{"x-should-retry", "false"}};
  EXPECT_EQ(to_http({.status = 500, .body = "", .retry_after_s = {}}).headers, no_retry);
  EXPECT_EQ(to_http({.status = 400, .body = "", .retry_after_s = {}}).headers, http::Headers());
  EXPECT_EQ(to_http({.status = 503, .body = "", .retry_after_s = 2}).headers, (http::Headers{{"Retry-After", "2"}}));
  EXPECT_EQ(to_http({.status = 503, .body = "", .retry_after_s = {}}).headers, no_retry);
  EXPECT_EQ(error_reply(500, "fault", "/").headers, no_retry);
  // A server that stops says the same of what it has not begun, whoever finds it.
  EXPECT_EQ(to_http({.status = 503, .body = "", .retry_after_s = {}, .undone = true}).headers,
            error_reply(503, "the server is stopping", "/").headers);
}

}  // namespace
}  // namespace terrace::serve
