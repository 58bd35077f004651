// The same on the control port.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>

#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/tier_node/service/slow_client.h"
#include "tier_node/service/control_server.h"

namespace terrace::node {
namespace {

using namespace test;

TEST_F(SlowClient, ControlPortByteByByteOrMute_CallsAreAnsweredAndTheConnectionsEnd) {
  start(patient());
  NodeInfo info;
  const auto control = must(ControlServer::start("127.0.0.1:0", node_->sessions(), node_->loader(), info));
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(4096, '\0');
  const auto bytes = std::as_bytes(std::span(preface));
  std::deque<RawSocket> sockets(40);
  std::deque<Dripper> drippers;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ASSERT_TRUE(sockets[i].connect(control->port()));
    if (i % 2 == 0) drippers.emplace_back(sockets[i], std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  const auto stub =
      terrace::v1::Node::NewStub(grpc::CreateChannel(control->address(), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    terrace::v1::DescribeReply reply;
    const grpc::Status status = stub->Describe(&context, {}, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  expect_others_are_served();
  for (std::size_t i = 0; i < sockets.size(); ++i)
    EXPECT_TRUE(sockets[i].closed_within(kHang)) << (i % 2 == 0 ? "drips " : "mute ") << i;
  drippers.clear();
  expect_nothing_left();
}

}  // namespace
}  // namespace terrace::node
