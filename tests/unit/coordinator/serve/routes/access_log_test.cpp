#include "coordinator/serve/routes/access_log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace terrace::serve {
namespace {

std::pair<LogLevel, std::string> line_of(const http::Served& served) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  log_served(Logger::to_function(LogLevel::kDebug,
                                 [&](LogLevel level, std::string_view text) { lines.emplace_back(level, text); }),
             served);
  EXPECT_EQ(lines.size(), 1U);
  return lines.at(0);
}

TEST(AccessLog, RequestThatFailed_IsAnErrorWithItsIdAndTheReason) {
  http::Served served{.id = "req-7", .method = "POST", .path = "/completion", .remote = "::1", .complete = true};
  const auto expect = [&](int status, const char* failure, LogLevel level) {
    served.status = status;
    served.failure = failure;
    const auto [found, text] = line_of(served);
    EXPECT_EQ(found, level) << text;
    EXPECT_NE(text.find("[req-7]"), std::string::npos) << text;
    EXPECT_NE(text.find(failure), std::string::npos) << text;
  };
  expect(200, "", LogLevel::kInfo);
  expect(404, "", LogLevel::kInfo);
  expect(500, "box1:9000 is gone", LogLevel::kError);
  expect(200, "box1:9000 is gone", LogLevel::kError);  // a stream that had begun
  expect(503, "the queue is full", LogLevel::kWarn);
  served.path = "/health";
  expect(503, "Loading model", LogLevel::kDebug);
}

TEST(AccessLog, FloodOfRefusedConnections_IsALineAnInterval) {
  std::vector<std::string> lines;
  AccessLog log(
      Logger::to_function(LogLevel::kInfo, [&](LogLevel, std::string_view text) { lines.emplace_back(text); }));
  const http::Served refused{
      .id = "req-1", .method = {}, .path = {}, .remote = "::1", .status = 503, .complete = true, .failure = "in use"};
  const AccessLog::Clock::time_point begin{};
  for (int i = 0; i < 1000; ++i) log.add(refused, begin + std::chrono::milliseconds(i));
  ASSERT_EQ(lines.size(), 1U);
  log.add(refused, begin + AccessLog::kRefusalInterval);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1], "999 more connections were refused since the last line about one");
  log.add(refused, begin + 2 * AccessLog::kRefusalInterval);
  EXPECT_EQ(lines.size(), 4U);  // none between: nothing to count
}

TEST(AccessLog, RequestsThatFail_AreALineEachBesideAFlood) {
  std::size_t n_lines = 0;
  AccessLog log(Logger::to_function(LogLevel::kInfo, [&](LogLevel, std::string_view) { ++n_lines; }));
  const http::Served full{.id = "r", .method = "POST", .path = "/completion", .remote = "::1", .status = 503};
  for (int i = 0; i < 5; ++i) log.add(full, {});
  EXPECT_EQ(n_lines, 5U);
}

}  // namespace
}  // namespace terrace::serve
