#include "coordinator/serve/routes/access_log.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace terrace::serve
