// One request out of bytes, however they are cut.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "coordinator/serve/http/request_reader.h"

namespace terrace::serve::http {
namespace {

constexpr RequestReader::Limits kLimits{.header_bytes = 1024, .headers = 8};
constexpr std::uint64_t kMaxBody = 64;

struct Read {
  int status = 0;  // of the failure; 0: none
  bool done = false;
  std::string method, target, body;
  std::size_t used = 0;
  bool operator==(const Read&) const = default;
};

// Gives the reader `first` bytes, then the rest.
Read read(const std::string& bytes, std::size_t first) {
  RequestReader reader(kLimits);
  Read out;
  const auto feed = [&](std::size_t end) {
    while (out.used < end) {
      const std::size_t used = reader.feed(std::string_view(bytes).substr(out.used, end - out.used));
      out.used += used;
      if (reader.state() == RequestReader::State::kHeadDone)
        reader.read_body(kMaxBody);
      else if (used == 0)
        break;
      if (reader.state() == RequestReader::State::kDone || reader.state() == RequestReader::State::kFailed) break;
    }
  };
  feed(first);
  feed(bytes.size());
  out.done = reader.state() == RequestReader::State::kDone;
  if (reader.state() == RequestReader::State::kFailed) {
    out.status = reader.failure().status;
    EXPECT_NE(reader.failure().message, "");
    return {.status = out.status, .done = false, .method = "", .target = "", .body = "", .used = 0};
  }
  out.method = reader.head().method;
  out.target = reader.head().target;
  if (out.done) out.body = reader.take_body();
  return out;
}

struct Case {
  std::string bytes;
  int status = 0;  // 0: is read to its end
  std::optional<std::string> body;
};

std::vector<Case> cases() {
  const std::string post = "POST /p HTTP/1.1\r\nHost: t\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  return {
      {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", 0, ""},
      {"GET / HTTP/1.0\r\n\r\n", 0, ""},
      {"MAKE-COFFEE /pot HTTP/1.1\r\nHost: t\r\n\r\n", 0, ""},
      {post + "Content-Length: 3\r\n\r\nabc", 0, "abc"},
      {post + "Content-Length: 0\r\n\r\n", 0, ""},
      {chunked + "3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n", 0, "abcde"},
      {chunked + "0\r\n\r\n", 0, ""},
      {post + fmt::format("Content-Length: {}\r\n\r\n{}", kMaxBody, std::string(kMaxBody, 'b')), 0, std::nullopt},
      // no HTTP
      {"\x16\x03\x01\x02\r\n\r\n", 400, {}},
      {"GET /\r\n\r\n", 400, {}},
      {"GET  / HTTP/1.1\r\n\r\n", 400, {}},
      {"GET / HTTP/1.1\r\nHost: t\r\nA : b\r\n\r\n", 400, {}},
      {"GET / HTTP/1.1\r\nHost: t\r\n: b\r\n\r\n", 400, {}},
      {std::string("GET / HTTP/1.1\r\nHost: t\r\nA: b\0c\r\n\r\n", 36), 400, {}},
      {"GET / HTTP/2.0\r\nHost: t\r\n\r\n", 505, {}},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, {}},
      // hosts
      {"GET / HTTP/1.1\r\n\r\n", 400, {}},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, {}},
      // lengths that two readers may understand differently
      {post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, {}},
      {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, {}},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, {}},
      {post + "Content-Length: -3\r\n\r\n", 400, {}},
      {post + "Content-Length: +3\r\n\r\nabc", 400, {}},
      {post + "Content-Length: 3 4\r\n\r\nabc", 400, {}},
      {post + "Content-Length: 18446744073709551619\r\n\r\nabc", 400, {}},
      {post + "Content-Length: 0x3\r\n\r\nabc", 400, {}},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501, {}},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, {}},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, {}},
      {post + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415, {}},
      {chunked + "g\r\n", 400, {}},
      {chunked + "FFFFFFFFFFFFFFFFF\r\n", 400, {}},
      {chunked + "3\r\nabcd\r\n0\r\n\r\n", 400, {}},
      // sizes
      {post + fmt::format("Content-Length: {}\r\n\r\n", kMaxBody + 1), 413, {}},
      {post + "Content-Length: 18446744073709551615\r\n\r\n", 413, {}},
      {chunked + "40\r\n" + std::string(64, 'b') + "\r\n1\r\nb\r\n0\r\n\r\n", 413, {}},
      {chunked + "FFFFFFFFFFFFFFFF\r\n", 413, {}},
      {"GET /" + std::string(1024, 'a') + " HTTP/1.1\r\nHost: t\r\n\r\n", 431, {}},
      {"GET / HTTP/1.1\r\nHost: t\r\nA: " + std::string(1024, 'a') + "\r\n\r\n", 431, {}},
      {"GET / HTTP/1.1\r\nHost: t\r\nA: " + std::string(1024, 'a'), 431, {}},
      {"GET / HTTP/1.1\r\nHost: t\r\n1: a\r\n2: a\r\n3: a\r\n4: a\r\n5: a\r\n6: a\r\n7: a\r\n8: a\r\n\r\n", 431, {}},
  };
}

TEST(HttpRequestReader, EachCaseAtEachCut_IsReadOrRefusedTheSameWay) {
  for (const Case& c : cases()) {
    const Read whole = read(c.bytes, c.bytes.size());
    EXPECT_EQ(whole.status, c.status) << c.bytes.substr(0, 200);
    EXPECT_EQ(whole.done, c.status == 0) << c.bytes.substr(0, 200);
    if (c.body) {
      EXPECT_EQ(whole.body, *c.body);
    }
    EXPECT_EQ(whole.used, c.status == 0 ? c.bytes.size() : 0);
    for (std::size_t first = 0; first < c.bytes.size(); ++first)
      ASSERT_EQ(read(c.bytes, first), whole) << "cut at " << first << " of " << c.bytes.substr(0, 200);
  }
}

// Where other readers may see a line's end: seen as none here, so that the head never ends or is refused.
TEST(HttpRequestReader, BareLineFeeds_EndNoLine) {
  const std::string bytes = "GET / HTTP/1.1\nHost: t\n\n";
  for (std::size_t first = 0; first <= bytes.size(); ++first) EXPECT_FALSE(read(bytes, first).done) << first;
}

TEST(HttpRequestReader, NextRequest_IsLeftAlone) {
  const std::string two = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\n";
  const Read first = read(two, two.size());
  EXPECT_TRUE(first.done);
  EXPECT_EQ(two.substr(first.used), "GET /b HTTP/1.1\r\n");
}

}  // namespace
}  // namespace terrace::serve::http
