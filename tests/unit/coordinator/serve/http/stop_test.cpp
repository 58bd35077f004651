// The end of the server, with requests in every state.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/unit/coordinator/serve/http/streams.h"

namespace terrace::serve::http {
namespace {

TEST(HttpStop, OpenStream_IsWaitedFor) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  exchange->begin_stream({});
  server->drain();
  std::jthread ends([&] {
    exchange->write("data: last\n\n");
    exchange->finish();
  });
  EXPECT_TRUE(server->stop(Milliseconds(10'000)));
  ends.join();
  const Answer answer = client.read();
  EXPECT_EQ(answer.body, "data: last\n\n");
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(client.at_end());
}

TEST(HttpStop, PatienceOver_CutsWhatIsLeft_AndTellsIt) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  std::atomic<int> told = 0;
  exchange->on_gone([&] { ++told; });
  exchange->begin_stream({});
  EXPECT_FALSE(server->stop(Milliseconds(10)));
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(exchange->write("x"));
  EXPECT_FALSE(client.read().complete);
}

TEST(HttpStop, ExchangeThatOutlivesTheServer_DoesNothing) {
  Streams streams;
  std::shared_ptr<Exchange> exchange;
  {
    const auto server = start(test_options(), streams.router());
    Client client(server->port());
    client.send(post("/stream", ""));
    exchange = streams.next();
  }
  EXPECT_TRUE(exchange->gone());
  EXPECT_FALSE(exchange->begin_stream({}));
  exchange->reply({});
}

TEST(HttpStop, Drained_TakesNoFurtherConnectionAndEndsIdleOnes) {
  const auto server = start(test_options());
  Client idle(server->port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.read().status, 200);
  server->drain();
  EXPECT_TRUE(idle.at_end());
  EXPECT_TRUE(comes_true([&] {
    try {
      const Client late(server->port());
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
}

TEST(HttpStop, ManyClientsComingAndGoing_NothingIsLeft) {
  Streams streams;
  const auto server = start(test_options(), streams.router());
  std::atomic<bool> enough = false;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&server, &enough, i] {
      try {
        while (!enough) {
          Client client(server->port());
          client.send(i % 2 == 0 ? post("/stream", "") : get("/health"));
          if (i % 2 != 0) client.read();
        }
      } catch (const std::runtime_error&) {  // the server has stopped listening
      }
    });
  for (int i = 0; i < 100; ++i) streams.next()->begin_stream({});
  server->stop(Milliseconds(0));
  enough = true;
  for (std::jthread& client : clients) client.join();
  EXPECT_EQ(server->counts().exchanges, 0U);
  EXPECT_EQ(server->counts().connections, 0U);
}

}  // namespace
}  // namespace terrace::serve::http
