// What the log keeps of those who may come as often as they like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/tier_node/support/node_parts.h"
#include "tier_node/service/data_server.h"

namespace terrace::node {
namespace strangers_log_test {

using namespace test;

TEST(StrangersOnTheDataPort, ManyTimes_AreOneLine) {
  const TinyModel model;
  NodeParts node(model);
  const kernels::Ops ops = must(kernels::select_ops(this_machine().cpu, std::nullopt));
  transport::SealedTransport transport(std::make_shared<transport::LoopbackTransport>(), data_keys(node.sessions()));
  std::vector<std::string> lines;  // the I/O thread's, until the server has gone
  const Logger log =
      Logger::to_function(LogLevel::kDebug, [&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  DataServerOptions options;
  options.linger = options.stop_grace = std::chrono::milliseconds(20);
  auto server = must(DataServer::start(
      {transport, node.sessions(), node.loader(), node.gate(), ops, log, Waiting::kBlock}, "node:9100", {}, options));
  const SessionRef session = node.open();
  for (int i = 0; i < 20; ++i) {
    transport::LinkKey key = node.link_key(*session, wire::Lane::kLatency);
    key.key = security::Key();
    LaneClient stranger(transport, "node:9100", key, 4096);
    stranger.say_hello();
    ASSERT_EQ(stranger.last_words().code, ErrorCode::kRefused);
  }
  server.reset();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("no session of this node has this id and key"));
  EXPECT_FALSE(session->ended());
}

// Error frames need no credit: whoever has a session could fill the log with them.
TEST(ErrorsOfACoordinator, ManyTimes_AreOneLine_AndOneOfTheConnectionEndsIt) {
  const TinyModel model;
  NodeParts node(model);
  const kernels::Ops ops = must(kernels::select_ops(this_machine().cpu, std::nullopt));
  transport::SealedTransport transport(std::make_shared<transport::LoopbackTransport>(), data_keys(node.sessions()));
  std::vector<std::string> lines;  // the I/O thread's, until the server has gone
  const Logger log =
      Logger::to_function(LogLevel::kDebug, [&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  DataServerOptions options;
  options.linger = options.stop_grace = std::chrono::milliseconds(20);
  auto server = must(DataServer::start(
      {transport, node.sessions(), node.loader(), node.gate(), ops, log, Waiting::kBlock}, "node:9100", {}, options));
  const SessionRef session = node.open();
  LaneClient client(transport, "node:9100", node.link_key(*session, wire::Lane::kLatency),
                    session->limits().largest_peer_frame);
  client.greet();
  for (int i = 0; i < 1000; ++i) client.send_error(7, "nothing to be sorry for");
  client.send_plain(wire::FrameType::kPing, 1001);
  const auto pong = client.receive_answer();
  ASSERT_TRUE(pong && pong->type() == wire::FrameType::kPong) << "none of them ends the connection";
  client.send_error(0, "I hang up");
  EXPECT_TRUE(client.drained());
  EXPECT_TRUE(session->ended()) << "it was its last connection";
  server.reset();
  const auto said = [&](const char* what) {
    return std::ranges::count_if(lines, [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  EXPECT_EQ(said("the coordinator says: nothing to be sorry for"), 1);
  EXPECT_EQ(said("the coordinator says: I hang up"), 1);
  EXPECT_LE(lines.size(), 4u);
}

}  // namespace strangers_log_test
}  // namespace terrace::node
