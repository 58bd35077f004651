// Pieces of the server that need no socket: routes, targets, keys, rates, heads.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "coordinator/serve/http/answer_head.h"
#include "coordinator/serve/http/api_keys.h"
#include "coordinator/serve/http/host_name.h"
#include "coordinator/serve/http/rate_limit.h"
#include "coordinator/serve/http/router.h"
#include "coordinator/serve/http/target.h"

namespace terrace::serve::http {
namespace {

Route route() {
  return {.handler = [](const std::shared_ptr<Exchange>&) {}};
}

TEST(HttpRouter, OpenPart_TakesOnePartAndNoEmptyOne) {
  Router router;
  router.add("POST", "/slots/{id}", route());
  const auto match = router.find("POST", "/slots/12");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.pattern, "/slots/{id}");
  EXPECT_EQ(match.parameters, (Headers{{"id", "12"}}));
  for (const char* other : {"/slots/", "/slots", "/slots/1/2", "/slots/1/", "slots/1", "*", ""})
    EXPECT_EQ(router.find("POST", other).route, nullptr) << other;
}

TEST(HttpRouter, OtherMethod_KnowsTheOnesThatThereAre) {
  Router router;
  router.add("GET", "/props", route());
  router.add("POST", "/props", route());
  const auto match = router.find("DELETE", "/props");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.methods, (std::vector<std::string>{"GET", "POST"}));
}

TEST(HttpTarget, PathAndQuery_AreDecoded) {
  const auto target = parse_target("/slots/%31?action=save&x&y=a%20b+c&&y=2#part");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/slots/1");
  EXPECT_EQ(target->query, (Headers{{"action", "save"}, {"x", ""}, {"y", "a b c"}, {"y", "2"}}));
  EXPECT_EQ(parse_target("http://host:1/health")->path, "/health");
  EXPECT_EQ(parse_target("http://host")->path, "/");
  EXPECT_EQ(parse_target("*")->path, "*");
}

TEST(HttpTarget, WhatIsNoTarget_IsRefused) {
  for (const char* target : {"", "health", "?a", "/%", "/%4", "/%4g", "/%00", "/a?b=%", "/a?%zz=1"})
    EXPECT_FALSE(parse_target(target)) << target;
}

class KeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() / ("terrace_keys_" + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove(file_); }
  Result<ApiKeys> read(const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    return ApiKeys::from_file(file_);
  }
  std::filesystem::path file_;
};

TEST_F(KeyFile, EachLineIsAKey_EmptyOnesAndCommentsAreNone) {
  const auto keys = read("# ours\r\nsk-one\r\n\n  sk-two \nsk-three");
  ASSERT_TRUE(keys.ok()) << keys.error().text();
  EXPECT_EQ(keys->find("sk-one"), 0U);
  EXPECT_EQ(keys->find("sk-two"), 1U);
  EXPECT_EQ(keys->find("sk-three"), 2U);
  for (const char* other : {"", "sk-on", "sk-onee", "# ours", "SK-ONE"}) EXPECT_FALSE(keys->find(other)) << other;
}

TEST_F(KeyFile, WhatIsNoKeyFile_IsRefusedByName) {
  EXPECT_EQ(read("# nothing\n\n").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read("two words\n").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read("k\xc3\xa4y\n").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read(std::string((1 << 20) + 1, 'k')).error().code(), ErrorCode::kInvalidArgument);
  std::filesystem::remove(file_);
  const auto missing = ApiKeys::from_file(file_);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(missing.error().text().find(file_.string()), std::string::npos);
}

TEST(HttpRateLimit, BucketEmpties_FillsAgain_AndIsEachClientsOwn) {
  RateLimit rate(2, 3);
  const RateLimit::Clock::time_point begin{};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rate.take("a", begin), 0);
  EXPECT_DOUBLE_EQ(rate.take("a", begin), 0.5);
  EXPECT_EQ(rate.take("b", begin), 0);
  EXPECT_EQ(rate.take("a", begin + std::chrono::milliseconds(500)), 0);
  EXPECT_GT(rate.take("a", begin + std::chrono::milliseconds(500)), 0);
}

TEST(HttpRateLimit, ManyClients_AreForgottenInsteadOfFillingTheMemory) {
  RateLimit rate(1, 1);
  const RateLimit::Clock::time_point begin{};
  for (std::size_t i = 0; i < 3 * RateLimit::kMaxClients; ++i) EXPECT_EQ(rate.take(std::to_string(i), begin), 0);
  EXPECT_LE(rate.clients(), RateLimit::kMaxClients);
}

TEST(HttpAnswerHead, LineBreaksInHeaders_AreCutOut) {
  Reply reply;
  reply.headers = {{"X-A", "1\r\nX-B: 2"}};
  const std::string answer = whole_answer({}, {}, reply);
  EXPECT_EQ(answer.find("\r\nX-B:"), std::string::npos) << answer;
}

TEST(HttpAnswerHead, EmptyPiece_IsNoChunk) {
  std::string out;
  append_piece(out, "", false);
  EXPECT_EQ(out, "");
  append_piece(out, "0123456789abcdef", false);
  EXPECT_EQ(out, "10\r\n0123456789abcdef\r\n");
}

TEST(HttpReasonPhrase, UnknownNumber_HasOneToo) {
  EXPECT_EQ(reason_phrase(503), "Service Unavailable");
  EXPECT_EQ(reason_phrase(599), "Unknown");
}

TEST(HostNames, OwnNamesInAnySpelling_AreAllowedAndNoOthers) {
  const HostNames loopback("127.0.0.1", {"https://chat.example:8443", "http://[fd00::7]"}, "box");
  for (const char* own : {"", "localhost", "LocalHost.:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:80",
                          "[0:0:0:0:0:0:0:1]", "chat.example", "CHAT.example:1", "[fd00:0::7]:80"})
    EXPECT_TRUE(loopback.allowed(own)) << own;
  for (const char* other : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "chat.example.evil",
                            "box", "10.0.0.1", "[::2]", "[", "]", ":", "127.0.0.1@evil.example"})
    EXPECT_FALSE(loopback.allowed(other)) << other;

  const HostNames bound("192.168.1.5", {}, "Box");
  for (const char* own : {"192.168.1.5:8080", "box:8080", "localhost"}) EXPECT_TRUE(bound.allowed(own)) << own;
  for (const char* other : {"192.168.1.6", "box.evil.example"}) EXPECT_FALSE(bound.allowed(other)) << other;
  const HostNames named("node7.lan", {}, "");
  EXPECT_TRUE(named.allowed("node7.lan:8080"));
  EXPECT_FALSE(named.allowed("node8.lan:8080"));

  for (const char* all : {"0.0.0.0", "::"}) {  // by any address, as none can be pointed elsewhere
    const HostNames everywhere(all, {}, "box");
    for (const char* own : {"10.1.2.3:8080", "[2001:db8::1]:8080", "box"}) EXPECT_TRUE(everywhere.allowed(own)) << own;
    EXPECT_FALSE(everywhere.allowed("evil.example"));
  }
  EXPECT_TRUE(HostNames("127.0.0.1", {"*"}, "").allowed("evil.example"));
}

}  // namespace
}  // namespace terrace::serve::http
