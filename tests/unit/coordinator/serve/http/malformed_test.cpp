// Bytes that are no request: each is answered with its reason where that is possible, and costs nobody else anything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/unit/coordinator/serve/http/client.h"

namespace terrace::serve::http {
namespace {

struct Bad {
  const char* bytes;
  int status;
};
constexpr Bad kBad[] = {
    {"junk\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400},
    {"GET health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400},
    {"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505},
    {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
    {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
    {"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n", 417},
};

TEST(HttpMalformed, EachKind_IsToldWhy_AndEndsItsConnection) {
  const auto server = start(test_options());
  for (const Bad& bad : kBad) {
    Client client(server->port());
    client.send(bad.bytes);
    const Answer answer = client.read();
    EXPECT_EQ(answer.status, bad.status) << bad.bytes;
    EXPECT_TRUE(answer.body.starts_with(fmt::format("{{\"error\":\"{} ", bad.status))) << answer.body;
    EXPECT_EQ(answer.header("Connection") == "close", client.at_end()) << bad.bytes;
    EXPECT_NE(answer.header("x-request-id"), "");
  }
  Client client(server->port());
  client.send(get("/health"));
  EXPECT_EQ(client.read().status, 200);
}

// Mutations of good requests: the server answers or closes, and goes on with others. Seeded.
TEST(HttpMalformed, RandomChangesOfRequests_NeverStopTheServer) {
  constexpr unsigned kSeed = 20261130;
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  const std::string good[] = {
      get("/health"), post("/echo", "{\"a\":[1,2]}"),
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"};
  const auto server = start(test_options());
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good[below(std::size(good))] + get("/health");
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.erase(at, 1 + below(8));
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
          break;
      }
    }
    Client client(server->port());
    client.send(bytes);
    client.shut_sending();
    while (client.read().status != 0) {
    }
    Client other(server->port());
    other.send(get("/health"));
    ASSERT_EQ(other.read().status, 200) << "seed " << kSeed << ", round " << i << ", after: " << bytes;
  }
}

}  // namespace
}  // namespace terrace::serve::http
