// Answers that come in pieces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/coordinator/serve/http/streams.h"

namespace terrace::serve::http {
namespace {

TEST(HttpStream, Pieces_ArriveOneByOne_WithTheHeadersOfStreams) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  EXPECT_EQ(exchange->request().body, "{}");
  ASSERT_TRUE(exchange->begin_stream({}));
  const Answer head = client.read(true);
  EXPECT_EQ(head.header("Content-Type"), "text/event-stream");
  EXPECT_EQ(head.header("Transfer-Encoding"), "chunked");
  EXPECT_EQ(head.header("X-Accel-Buffering"), "no");
  EXPECT_EQ(head.header("Cache-Control"), "no-cache");
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(exchange->write(fmt::format("data: {}\n\n", i)));
    EXPECT_EQ(client.read_bytes(14), fmt::format("9\r\ndata: {}\n\n\r\n", i));
  }
  exchange->finish();
  EXPECT_EQ(client.read_bytes(5), "0\r\n\r\n");
  EXPECT_FALSE(exchange->write("late"));
  EXPECT_FALSE(exchange->gone());
  client.send(get("/health"));  // the connection is good for more
  EXPECT_EQ(client.read().status, 200);
}

TEST(HttpStream, FirstAnswerCounts) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  exchange->reply({.status = 400, .body = "no"});
  EXPECT_FALSE(exchange->begin_stream({}));
  exchange->reply({.body = "yes"});
  EXPECT_EQ(client.read().body, "no");
}

TEST(HttpStream, ManyThreads_EachPieceArrivesWholeAndInItsThreadsOrder) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  exchange->begin_stream({});
  std::vector<std::jthread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&exchange, w] {
      for (int i = 0; i < 500; ++i) exchange->write(fmt::format("{} {}\n", w, i));
    });
  for (std::jthread& writer : writers) writer.join();
  exchange->finish();
  const Answer answer = client.read();
  EXPECT_TRUE(answer.complete);
  int next[4] = {};
  std::istringstream lines(answer.body);
  for (int w = 0, i = 0; lines >> w >> i;) EXPECT_EQ(i, next[w]++);
  for (const int n : next) EXPECT_EQ(n, 500);
}

TEST(HttpStream, Silence_IsFilledWithPings) {
  ServerOptions options = test_options();
  options.ping_after = Milliseconds(1);  // at each look at the clock
  OneStream one(options);
  auto& [streams, server, client, exchange] = one;
  exchange->begin_stream({.ping = ": p\n\n"});
  client.read(true);
  EXPECT_TRUE(client.read_bytes(20).starts_with("5\r\n: p\n\n\r\n5\r\n: p\n\n\r\n"));
  exchange->finish();
}

TEST(HttpStream, Http10_GetsTheBytesAsTheyAre) {
  Streams streams;
  const auto server = start(test_options(), streams.router());
  Client client(server->port());
  client.send("POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  const auto exchange = streams.next();
  exchange->begin_stream({});
  exchange->write("data: 1\n\n");
  exchange->finish();
  const Answer answer = client.read();
  EXPECT_EQ(answer.header("Transfer-Encoding"), "");
  EXPECT_EQ(answer.body, "data: 1\n\n");
}

TEST(HttpStream, Unfinished_IsSeenToBeCut) {
  OneStream one;
  auto& [streams, server, client, exchange] = one;
  exchange->begin_stream({});
  exchange->write("data: 1\n\n");
  exchange.reset();
  const Answer answer = client.read();
  EXPECT_EQ(answer.body, "data: 1\n\n");
  EXPECT_FALSE(answer.complete);
}

TEST(HttpStream, ClientThatDoesNotRead_IsCutOff_OthersAreServed) {
  ServerOptions options = test_options();
  options.max_unsent = 64 << 10;
  OneStream one(options, 4096);
  auto& [streams, server, mute, stuck] = one;
  stuck->begin_stream({});
  std::atomic<int> told = 0;
  stuck->on_gone([&] { ++told; });
  Client reader(server->port());
  reader.send(post("/stream", ""));
  const auto good = streams.next();
  good->begin_stream({});
  reader.read(true);

  const std::string piece(16 << 10, 'x');
  int written = 0;
  while (written < 10'000 && stuck->write(piece)) ++written;
  EXPECT_LT(written, 10'000) << "160 MB were taken for a client that reads nothing";
  EXPECT_TRUE(comes_true([&] { return told == 1; }));
  EXPECT_TRUE(stuck->gone());
  EXPECT_EQ(server->counts().cut_off, 1U);

  EXPECT_TRUE(good->write("data: 1\n\n"));
  EXPECT_EQ(reader.read_bytes(14), "9\r\ndata: 1\n\n\r\n");
  good->finish();
}

TEST(HttpStream, ClientThatStopsReading_IsCutOffByTimeToo) {
  ServerOptions options = test_options();
  options.write_timeout = Milliseconds(200);
  options.max_unsent = 64 << 20;
  OneStream one(options, 4096);
  auto& [streams, server, mute, exchange] = one;
  std::atomic<bool> told = false;
  exchange->on_gone([&] { told = true; });
  exchange->begin_stream({});
  EXPECT_TRUE(exchange->write(std::string(32 << 20, 'x')));
  EXPECT_TRUE(comes_true([&] { return told.load(); }));
  EXPECT_EQ(server->counts().cut_off, 1U);
}

TEST(HttpStream, While256AreOpen_HealthMetricsAndCancelAreAnswered) {
  Streams streams;
  const auto server = start(test_options(), streams.router());
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  std::atomic<int> gone = 0;
  for (int i = 0; i < 256; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->send(post("/stream", ""));
    exchanges.push_back(streams.next());
    exchanges.back()->begin_stream({});
    exchanges.back()->on_gone([&] { ++gone; });
  }
  EXPECT_EQ(server->counts().exchanges, 256U);
  for (int round = 0; round < 20; ++round) {
    for (const auto& exchange : exchanges) exchange->write("data: token\n\n");
    Client monitor(server->port());
    monitor.send(get("/health") + get("/metrics"));
    EXPECT_EQ(monitor.read().body, "healthy");
    EXPECT_EQ(monitor.read().body, "counted");
  }
  clients[100]->close();
  EXPECT_TRUE(comes_true([&] { return gone == 1; }));
  EXPECT_TRUE(exchanges[100]->gone());
  for (const auto& exchange : exchanges) exchange->finish();
  EXPECT_TRUE(comes_true([&] { return server->counts().exchanges == 0; }));
}

}  // namespace
}  // namespace terrace::serve::http
