// Clients that go away: each is noticed without a byte being sent to it.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <tuple>

#include "tests/unit/coordinator/serve/http/streams.h"

namespace terrace::serve::http {
namespace {

enum class Leaves { kCloses, kResets, kShutsSending };
enum class When { kBeforeTheAnswer, kWhileItStreams };

class HttpDisconnect : public ::testing::TestWithParam<std::tuple<Leaves, When>> {};

TEST_P(HttpDisconnect, IsNoticedAtOnce_AndToldOnce) {
  const auto [how, when] = GetParam();
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  std::atomic<int> told = 0;
  exchange->on_gone([&] { ++told; });
  if (when == When::kWhileItStreams) {
    exchange->begin_stream({});
    exchange->write("data: 1\n\n");
    client.read_bytes(100);
  }
  if (how == Leaves::kCloses) client.close();
  if (how == Leaves::kResets) client.reset();
  if (how == Leaves::kShutsSending) client.shut_sending();
  EXPECT_TRUE(comes_true([&] { return told > 0; }));
  EXPECT_TRUE(exchange->gone());
  EXPECT_FALSE(exchange->write("data: 2\n\n"));
  exchange->finish();
  exchange->reply({});
  EXPECT_EQ(server->counts().gone, 1U);
  EXPECT_EQ(server->counts().exchanges, 0U);
  bool at_once = false;
  exchange->on_gone([&] { at_once = true; });
  EXPECT_TRUE(at_once);
  EXPECT_EQ(told, 1);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Leaves, When>>& tested) {
  constexpr const char* kLeaves[] = {"Closes", "Resets", "ShutsSending"};
  const auto [how, when] = tested.param;
  return std::string(kLeaves[static_cast<int>(how)]) +
         (when == When::kWhileItStreams ? "_WhileItStreams" : "_BeforeTheAnswer");
}
INSTANTIATE_TEST_SUITE_P(Each, HttpDisconnect,
                         ::testing::Combine(::testing::Values(Leaves::kCloses, Leaves::kResets, Leaves::kShutsSending),
                                            ::testing::Values(When::kBeforeTheAnswer, When::kWhileItStreams)),
                         name_of);

TEST(HttpDisconnectAfter, CompleteAnswer_IsNoLeaving) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  std::atomic<int> told = 0;
  exchange->on_gone([&] { ++told; });
  exchange->reply({.body = "done"});
  EXPECT_EQ(client.read().body, "done");
  client.close();
  EXPECT_TRUE(comes_true([&] { return server->counts().connections == 0; }));
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(exchange->gone());
}

TEST(HttpDisconnectAfter, LastRequest_IsStillAnswered) {
  const auto server = start(test_options());
  Client client(server->port());
  client.send(get("/health"));
  client.shut_sending();
  EXPECT_EQ(client.read().body, "healthy");
  EXPECT_TRUE(client.at_end());
}

TEST(HttpDisconnectAfter, HalfARequest_IsForgotten) {
  const auto server = start(test_options());
  for (const char* half : {"", "GET /hea", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"}) {
    Client client(server->port());
    client.send(half);
    client.close();
  }
  EXPECT_TRUE(comes_true([&] { return server->counts().accepted == 3 && server->counts().connections == 0; }));
  EXPECT_EQ(server->counts().exchanges, 0U);
}

}  // namespace
}  // namespace terrace::serve::http
