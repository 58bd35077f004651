// What the log keeps of those who may come as often as they like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tier_node/support/node_parts.h"
#include "tier_node/service/data_server.h"

namespace terrace::node {
namespace {

using namespace test;

TEST(StrangersOnTheDataPort, ManyTimes_AreOneLine) {
  const TinyModel model;
  NodeParts node(model);
  const kernels::Ops ops = must(kernels::select_ops(this_machine().cpu, std::nullopt));
  transport::LoopbackTransport transport;
  std::vector<std::string> lines;  // the I/O thread's, until the server has gone
  const Logger log =
      Logger::to_function(LogLevel::kDebug, [&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  DataServerOptions options;
  options.linger = options.stop_grace = std::chrono::milliseconds(20);
  auto server = must(DataServer::start(
      {transport, node.sessions(), node.loader(), node.gate(), ops, log, Waiting::kBlock}, "node:9100", {}, options));
  const SessionRef session = node.open();
  for (int i = 0; i < 20; ++i) {
    LaneClient stranger(transport, "node:9100", *session, wire::Lane::kLatency);
    stranger.set_token(wire::Token{});
    stranger.say_hello();
    const auto answer = stranger.receive();
    ASSERT_TRUE(answer && answer->type() == wire::FrameType::kError);
  }
  server.reset();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("no session of this node has this id and token"));
  EXPECT_FALSE(session->ended());
}

}  // namespace
}  // namespace terrace::node
