// Limits of size, number and time: beyond each, the client that exceeds it is told and everyone else goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/coordinator/serve/http/client.h"

namespace terrace::serve::http {
namespace {

void expect_healthy(const Server& server) {
  Client client(server.port());
  client.send(get("/health"));
  EXPECT_EQ(client.read().status, 200);
}

TEST(HttpLimits, HeadTooLongOrTooManyHeaders_Is431) {
  ServerOptions options = test_options();
  options.max_header_bytes = 4096;
  options.max_headers = 10;
  const auto server = start(options);
  std::string many;
  for (int i = 0; i < 10; ++i) many += "A: b\r\n";
  for (const std::string& request : {get("/health", many), get("/health", "A: " + std::string(5000, 'a') + "\r\n"),
                                     get("/" + std::string(5000, 'a')),
                                     "GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(100'000, 'a')}) {
    Client client(server->port());
    client.send(request);
    EXPECT_EQ(client.read().status, 431) << request.substr(0, 80);
    EXPECT_TRUE(client.at_end());
  }
  expect_healthy(*server);
}

TEST(HttpLimits, BodyTooLong_Is413_BeforeItIsSentWhereItsLengthIsAnnounced) {
  ServerOptions options = test_options();
  options.max_body = 1000;
  const auto server = start(options);
  {
    Client client(server->port());
    client.send(post("/echo", std::string(1000, 'b')));
    EXPECT_EQ(client.read().body.size(), 1000U);
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n");
    EXPECT_EQ(client.read().status, 413);
    EXPECT_TRUE(client.at_end());
  }
  Client client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) client.send("64\r\n" + std::string(100, 'b') + "\r\n");
  EXPECT_EQ(client.read().status, 413);
  expect_healthy(*server);
}

// The answer has to reach a client that is still sending: closing with unread bytes would destroy it.
TEST(HttpLimits, ClientStillSendingAMegabyte_CanReadWhyItIsRefused) {
  ServerOptions options = test_options();
  options.max_body = 1000;
  const auto server = start(options);
  Client client(server->port());
  client.send(post("/echo", std::string(900'000, 'b')));
  EXPECT_EQ(client.read().status, 413);
}

TEST(HttpLimits, EndlessChunkHead_IsRefused) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
              std::string(100'000, 'x'));
  EXPECT_EQ(client.read().status, 400);
  expect_healthy(*server);
}

TEST(HttpLimits, BodiesBeyondTheirMemory_Are503_UntilOthersAreDone) {
  ServerOptions options = test_options();
  options.max_body = 1000;
  options.max_bodies = 1500;
  const auto server = start(options);
  auto first = std::make_unique<Client>(server->port());
  first->send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
  ASSERT_EQ(first->read().status, 100);
  const std::string half = post("/echo", std::string(600, 'b'));
  Client second(server->port());
  second.send(half);
  EXPECT_EQ(second.read().status, 503);
  first->close();
  EXPECT_TRUE(comes_true([&] {
    Client third(server->port());
    third.send(half);
    return third.read().status == 200;
  }));
}

TEST(HttpLimits, Expect100_IsAnsweredOnceTheHeadHasPassed) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send("abc");
  EXPECT_EQ(client.read().body, "abc");
}

TEST(HttpLimits, SlowHeads_AreToldSo_AndHoldNobodyUp) {
  ServerOptions options = test_options();
  options.header_timeout = Milliseconds(300);
  const auto server = start(options);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<Client>(server->port()));
    slow.back()->send("GET /health HTTP/1.1\r\nHost: localhost\r\nA: ");
  }
  // A byte now and then does not help them.
  bool all_told = false;
  for (int round = 0; round < 200 && !all_told; ++round) {
    expect_healthy(*server);
    all_told = true;
    for (const auto& client : slow) all_told = client->send("a") ? false : all_told;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(all_told);
  // One that went on sending may have lost the answer to the reset that this earned it.
  for (const auto& client : slow) EXPECT_THAT(client->read().status, ::testing::AnyOf(408, 0));
}

TEST(HttpLimits, SlowHead_Is408) {
  ServerOptions options = test_options();
  options.header_timeout = Milliseconds(200);
  const auto server = start(options);
  Client client(server->port());
  client.send("GET /health HTT");
  EXPECT_EQ(client.read().status, 408);
}

TEST(HttpLimits, SlowBody_Is408) {
  ServerOptions options = test_options();
  options.body_timeout = Milliseconds(200);
  const auto server = start(options);
  Client client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabc");
  EXPECT_EQ(client.read().status, 408);
  EXPECT_TRUE(client.at_end());
}

TEST(HttpLimits, IdleConnections_AreClosed) {
  ServerOptions options = test_options();
  options.idle_timeout = Milliseconds(200);
  options.header_timeout = Milliseconds(200);
  const auto server = start(options);
  Client silent(server->port());
  Client used(server->port());
  used.send(get("/health"));
  EXPECT_EQ(used.read().status, 200);
  EXPECT_TRUE(silent.at_end());
  EXPECT_TRUE(used.at_end());
  EXPECT_TRUE(comes_true([&] { return server->counts().connections == 0; }));
}

TEST(HttpLimits, OneConnectionTooMany_IsToldSo_UntilOneLeaves) {
  ServerOptions options = test_options();
  options.max_connections = 2;
  const auto server = start(options);
  auto first = std::make_unique<Client>(server->port());
  Client second(server->port());
  for (Client* client : {first.get(), &second}) {
    client->send(get("/health"));
    EXPECT_EQ(client->read().status, 200);
  }
  Client third(server->port());
  third.send(get("/health"));
  const Answer answer = third.read();
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.header("x-request-id"), "");
  EXPECT_EQ(answer.body, "{\"error\":\"503 all 2 connections are in use; try again later\"}");
  first->close();
  EXPECT_TRUE(comes_true([&] {
    Client again(server->port());
    again.send(get("/health"));
    return again.read().status == 200;
  }));
  EXPECT_GE(server->counts().refused, 1U);
}

// UBSan looks at an object's memory by way of a pipe before it trusts its type, and there is no file for that either:
// the log's logger "has an invalid vptr" then.
#if !defined(__SANITIZE_ADDRESS__)
// One file descriptor is left to this process: its own limit, which goes back at the end.
class OneFileLeft {
 public:
  OneFileLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);  // the lowest that is free
    ::close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + 1;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~OneFileLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OneFileLeft(const OneFileLeft&) = delete;
  OneFileLeft& operator=(const OneFileLeft&) = delete;

 private:
  rlimit before_{};
};

TEST(HttpLimits, NoFileLeftToAcceptWith_IsOverWhenThereIsOne) {
  std::atomic<int> told = 0;
  ServerOptions options = test_options();
  options.log = Logger::to_function(LogLevel::kWarn, [&](LogLevel, std::string_view text) {
    if (text.find("trying again") != std::string_view::npos) ++told;
  });
  const auto server = start(options);
  std::unique_ptr<Client> waiting;
  {
    const OneFileLeft few;
    waiting = std::make_unique<Client>(server->port());  // has it before the server can accept
    EXPECT_TRUE(comes_true([&] { return told > 0; }));
    EXPECT_EQ(server->counts().accepted, 0U);
  }
  Client late(server->port());
  for (Client* client : {waiting.get(), &late}) {
    client->send(get("/health"));
    EXPECT_EQ(client->read().status, 200);
  }
}
#endif

}  // namespace
}  // namespace terrace::serve::http
