#include "common/metrics/exposer/exposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::metrics {
namespace {

// What it answers is asked of a running node: tests/deploy/metrics_test.py.
TEST(MetricsExposer, PortInUse_ErrorNamesTheAddress) {
  const auto nothing = [] { return std::vector<Family>(); };
  const auto first = Exposer::start("127.0.0.1", 0, nothing);
  ASSERT_TRUE(first.ok()) << first.error().text();
  const std::string address = (*first)->address();
  EXPECT_THAT(address, testing::MatchesRegex("127\\.0\\.0\\.1:[0-9]+"));
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
  EXPECT_NE(port, 0);
  const auto second = Exposer::start("127.0.0.1", port, nothing);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kIo);
  EXPECT_THAT(second.error().text(), testing::StartsWith(address));
}

}  // namespace
}  // namespace terrace::metrics
