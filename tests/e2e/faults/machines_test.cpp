// The harness itself: that a machine of a test is another one, and that its link does what it was told. Were it not so,
// tests over it would pass and show nothing.
#include <gtest/gtest.h>

#include "common/transport/tcp/tcp.h"
#include "tests/contract/transport_harness.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace machines_test {

using namespace std::chrono_literals;

const auto* const kMachinesNetwork = own_network();

class Machines : public testing::Test {
 protected:
  void SetUp() override {
    const std::string lacks = lacking({"root", "netns"});
    if (!lacks.empty()) GTEST_SKIP() << lacks;
  }
  // A connection to a server on the machine.
  void connect(const Machine& machine, const std::string& host) {
    std::unique_ptr<transport::Listener> listener;
    machine.inside([&] { listener = must(tcp_.listen(host + ":0", {})); });
    client_.connection = must(tcp_.connect(listener->address(), {}, 10s));
    server_.connection = transport::test::accept_one(*listener);
  }
  // Whether a frame that is sent now arrives.
  bool arrives(std::chrono::milliseconds patience) {
    frames_.push_back(transport::test::make_frame(frames_.size() + 1, 160));
    (void)client_->send(frames_.back()->parts());
    return eventually(
        [&] {
          client_.poll();
          server_.poll();
          return server_.received == frames_.size();
        },
        patience);
  }

  transport::TcpTransport tcp_;
  std::vector<std::unique_ptr<transport::test::TestFrame>> frames_;  // borrowed by the connection
  transport::test::End client_, server_;
};

TEST_F(Machines, ReachedByBothFamilies_AndOnlyThere) {
  const Machine machine(1);
  for (const std::string& host : {machine.ipv4(), "[" + machine.ipv6() + "]"}) {
    connect(machine, host);
    EXPECT_TRUE(arrives(kPatience)) << host;
    EXPECT_TRUE(client_->peer_name().starts_with(host)) << client_->peer_name();
    frames_.clear();
    client_ = {}, server_ = {};
  }
  EXPECT_FALSE(tcp_.listen(machine.ipv4() + ":0", {}).ok()) << "its address is not ours";
}

TEST_F(Machines, LinkDown_NothingArrivesUntilItIsUpAgain) {
  Machine machine(2);
  connect(machine, machine.ipv4());
  ASSERT_TRUE(arrives(kPatience));
  machine.set_link(false);
  EXPECT_FALSE(arrives(300ms));
  EXPECT_FALSE(client_.closed) << "silence, not the end";
  machine.set_link(true);
  EXPECT_TRUE(eventually([&] {
    client_.poll();
    server_.poll();
    return server_.received == frames_.size();
  }));
}

TEST_F(Machines, Connections_UseCubic) {
  const Machine machine(3);
  connect(machine, machine.ipv4());
  for (const int network : {-1, machine.network()})
    EXPECT_NE(run_shell_lines("ss -tin state established", network).find("cubic"), std::string::npos);
}

TEST_F(Machines, WhatIsLeft_IsNothing) {
  { const Machine machine(4); }
  EXPECT_EQ(run_shell_lines("ip -br link show").find("m4"), std::string::npos);
  EXPECT_TRUE(children().empty());
}

}  // namespace machines_test
}  // namespace terrace::test
