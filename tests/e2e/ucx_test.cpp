// Whole programs over --link ucx: the same tokens as on one machine, also when a node is killed; which ports they
// listen at; and what is refused.
#include <gmock/gmock.h>
#include <signal.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/e2e/support/cli.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/random_model.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::test {
namespace ucx_test {

using ::testing::HasSubstr;

const auto* const kUcxNetwork = own_network();
const Arguments kUcx = {"--link", "ucx", "--interface", "lo"};
constexpr int kFailureCode = 1, kUsageCode = 2;

Arguments operator+(Arguments words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

class UcxLink : public ::testing::Test {
 protected:
  void SetUp() override { make_random_model({}, model_); }
  Arguments generate(const std::vector<std::string>& nodes, int n_tokens, const Arguments& link = kUcx) const {
    Arguments all = {
        "generate", "--quiet", "--json", "--model", model_.string(), "-p", "abcdefg", "-n", std::to_string(n_tokens),
        "--batch",  "4"};
    for (const std::string& node : nodes) all = all + Arguments{"--node", node};
    return nodes.empty() ? all : all + link;
  }
  static void expect_same(const json& run, const json& alone) {
    EXPECT_EQ(run["tokens"], alone["tokens"]);
    EXPECT_EQ(run["logits_xxh3"], alone["logits_xxh3"]);
  }

  TempDir dir_;
  const std::filesystem::path model_ = dir_ / "random.gguf";
};

TEST_F(UcxLink, TwoNodes_SameTokensAsAlonePlainAndSealed) {
  const json alone = run_terrace_json(generate({}, 8));
  const std::string secret = secret_options(dir_, 1).secret_file.string();
  for (const Arguments& security : {Arguments{}, Arguments{"--secret-file", secret}}) {
    NodeProcess first(kUcx + security), second(kUcx + security);
    const json run = run_terrace_json(generate({first.address(), second.address()}, 8) + security);
    expect_same(run, alone);
    for (const int leg : {1, 2}) EXPECT_GT(run["legs"][leg]["batches"], 0);
    first.stop();
    second.stop();
  }
}

TEST_F(UcxLink, NodeKilledDuringDecode_SameTokens) {
  NodeProcess first(kUcx + Arguments{"--isa", "scalar", "--threads", "1"}), second(kUcx);
  Process coordinator(terrace(generate({first.address(), second.address()}, 400)));
  ASSERT_TRUE(NodeWatch(first.address()).until_rows(100));
  first.kill(SIGKILL);
  const Outcome outcome = coordinator.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << " signal " << outcome.signal;
  const json run = json::parse(outcome.out);
  expect_same(run, run_terrace_json(generate({}, 400)));
  EXPECT_EQ(run["legs"][1]["state"], "lost");
  EXPECT_TRUE(NodeWatch(second.address()).until_clean());
  second.stop();
}

// It says nothing any more, and its links stay. The run may end before that has been so for as long as makes it lost.
TEST_F(UcxLink, NodeStoppedDuringDecode_SameTokens) {
  NodeProcess first(kUcx + Arguments{"--isa", "scalar", "--threads", "1"}), second(kUcx);
  Process coordinator(terrace(generate({first.address(), second.address()}, 400)));
  ASSERT_TRUE(NodeWatch(first.address()).until_rows(100));
  first.kill(SIGSTOP);
  const Outcome outcome = coordinator.wait();
  first.kill(SIGCONT);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << " signal " << outcome.signal;
  const json run = json::parse(outcome.out);
  expect_same(run, run_terrace_json(generate({}, 400)));
  const json& leg = run["legs"][1];
  EXPECT_THAT(leg["state"], ::testing::AnyOf("suspect", "lost"));
  EXPECT_GT(leg["hedged_pairs"], 0) << leg;
  for (NodeProcess* node : {&first, &second}) {
    EXPECT_TRUE(NodeWatch(node->address()).until_clean());
    node->stop();
  }
}

// What shows whether ucx pays: the probe's round trips are over the link that it was given.
TEST_F(UcxLink, PlanProbe_MeasuresTheNodeOverIt) {
  NodeProcess node(kUcx);
  const json plan = run_terrace_json(Arguments{"plan", "--probe", "--probe-memory", "4M", "--quiet", "--json",
                                               "--model", model_.string(), "--node", node.address()} +
                                     kUcx);
  const json& leg = plan["prediction"]["decode"]["legs"][1];
  EXPECT_EQ(leg["name"], node.address());
  EXPECT_GT(leg["round_trip_us"], 0);
  const json status = run_terrace_json({"status", "--json", "--node", node.address()});
  EXPECT_EQ(status["link"], "ucx on lo, ports 9200-9455, TCP only, trusts loopback alone");
  node.stop();
}

// UCX looks for its interface below /sys, which shows that of whoever mounted it.
Arguments with_own_sys(const Arguments& command) {
  return Arguments{"/usr/bin/unshare", "-m", "/bin/sh", "-ec", "mount -t sysfs sysfs /sys; exec \"$@\"", "sh"} +
         command;
}

TEST_F(UcxLink, Ipv6OnAVethLink_SameTokens) {
  const std::string lacks = lacking({"root", "netns", "mount"});
  if (!lacks.empty()) GTEST_SKIP() << lacks;
  const Machine machine(1);
  const Arguments security = {"--secret-file", secret_options(dir_, 1).secret_file.string()};
  const std::string net = machine.ipv6().substr(0, machine.ipv6().rfind(':')) + ":/64";
  const Arguments ucx = {"--link", "ucx", "--trusted-net", net, "--interface"};
  const std::string address = "[" + machine.ipv6() + "]:9000";
  Process node(
      with_own_sys(Arguments{program("terrace-node"), "--listen", address} + security + ucx + Arguments{"link0"}), "",
      machine.network());
  ASSERT_TRUE(eventually([&] { return node.err().find("listening on") != std::string::npos || !node.running(); }));
  ASSERT_TRUE(node.running()) << node.err();
  const Outcome outcome = run_program(with_own_sys(terrace(generate({address}, 8, ucx + Arguments{"m1"}) + security)));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json run = json::parse(outcome.out);
  expect_same(run, run_terrace_json(generate({}, 8)));
  EXPECT_GT(run["legs"][1]["batches"], 0);
  node.kill(SIGTERM);
  EXPECT_EQ(node.wait().exit_code, 0);
}

// ---- ports ----------------------------------------------------------------------------------------------------------

// Ports at which a process listens, TCP, and any of UDP that it has.
std::set<unsigned> listening(pid_t pid) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  std::set<std::string> inodes;
  for (const auto& fd : std::filesystem::directory_iterator(process / "fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(fd, gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<unsigned> ports;
  for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream in(process / "net" / table);
    std::string line;
    std::getline(in, line);  // the heading
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, inode;
      fields >> number >> local >> remote >> state;
      for (int i = 0; i < 6; ++i) fields >> inode;
      const bool listens = state == "0A" || std::string(table).starts_with("udp");
      if (listens && inodes.contains(inode))
        ports.insert(static_cast<unsigned>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

std::size_t in_range(const std::set<unsigned>& ports, unsigned first, unsigned last) {
  return static_cast<std::size_t>(std::ranges::count_if(ports, [&](unsigned p) { return p >= first && p <= last; }));
}

TEST_F(UcxLink, ProgramsListenAtTheirDocumentedPortsAlone) {
  const Arguments ports = {"--ucx-ports", "19200-19263"};
  NodeProcess node(kUcx + ports);
  const auto control = static_cast<unsigned>(std::stoul(node.address().substr(node.address().rfind(':') + 1)));
  const auto expect_node = [&] {
    const std::set<unsigned> found = listening(node.process().pid());
    EXPECT_EQ(found.size(), 3u) << ::testing::PrintToString(found);
    EXPECT_TRUE(found.contains(control) && found.contains(node.data_port())) << ::testing::PrintToString(found);
    EXPECT_EQ(in_range(found, 19200, 19263), 1u) << ::testing::PrintToString(found);
  };
  expect_node();
  Process coordinator(terrace(generate({node.address()}, 1'000'000) + ports));
  ASSERT_TRUE(NodeWatch(node.address()).until_rows(10));
  expect_node();
  const std::set<unsigned> found = listening(coordinator.pid());
  EXPECT_EQ(found.size(), 3u) << "one for each lane";
  EXPECT_EQ(in_range(found, 19200, 19263), found.size()) << ::testing::PrintToString(found);
  coordinator.kill(SIGKILL);
  EXPECT_TRUE(NodeWatch(node.address()).until_clean());
  node.stop();
}

// The list above can show a port that is not documented: one of TCP is no surprise of UCX.
TEST(ListeningPorts, OfAnotherProcess_AreFound) {
  NodeProcess node;
  const std::set<unsigned> found = listening(node.process().pid());
  EXPECT_EQ(found.size(), 2u);
  EXPECT_TRUE(found.contains(node.data_port()));
  node.stop();
}

// ---- refusals -------------------------------------------------------------------------------------------------------

void expect_refused(const Arguments& flags, const std::string& what) {
  const Outcome node = run_program(Arguments{program("terrace-node"), "--listen", "127.0.0.1:0"} + flags);
  EXPECT_EQ(node.exit_code, kUsageCode) << node.err;
  EXPECT_THAT(node.err, HasSubstr(what));
  const Outcome run = run_terrace(Arguments{"generate", "--quiet", "-p", "a", "-n", "1"} + flags, kUsageCode);
  EXPECT_THAT(run.err, HasSubstr(what));
}

TEST(UcxRefusals, WhatDoesNotGoTogether_IsNamed) {
  expect_refused({"--link", "ucx"}, "--link ucx needs --interface NAME");
  expect_refused({"--interface", "lo"}, "--interface is for --link ucx, and the link is tcp");
  expect_refused({"--trusted-net", "10.0.0.0/8"}, "--trusted-net is for --link ucx, and the link is tcp");
  expect_refused({"--ucx-rdma", "mlx5_0:1"}, "--ucx-rdma is for --link ucx, and the link is tcp");
  expect_refused({"--ucx-ports", "9300-9400"}, "--ucx-ports is for --link ucx, and the link is tcp");
  expect_refused({"--link", "ucx", "--interface", "none0"}, "there is no network interface \"none0\"");
  expect_refused({"--link", "ucx", "--interface", "lo,lo"}, "leave out the comma");
  expect_refused(kUcx + Arguments{"--trusted-net", "10.0.0.0"}, "the length of its prefix is missing");
  expect_refused(kUcx + Arguments{"--trusted-net", "10.0.0.0/8"}, "interface lo has no address in 10.0.0.0/8");
  expect_refused(kUcx + Arguments{"--ucx-ports", "9300-9310"}, "is no range of at least 16 ports");
  expect_refused({"--link", "rdma", "--interface", "lo"}, "--link");
}

TEST(UcxRefusals, InterfaceBeyondLoopback_NeedsATrustedNetwork) {
  const std::string lacks = lacking({"root", "netns"});
  if (!lacks.empty()) GTEST_SKIP() << lacks;
  const Machine machine(2);
  expect_refused({"--link", "ucx", "--interface", "m2"},
                 "interface m2 is not loopback, and UCX is for trusted networks");
}

TEST(UcxRefusals, NodeOutsideTheTrustedNetwork_IsNamed) {
  const std::string lacks = lacking({"root", "netns", "mount"});
  if (!lacks.empty()) GTEST_SKIP() << lacks;
  NodeProcess node(kUcx);
  const Machine machine(3);
  const std::string net = machine.our_ipv4() + "/32";
  const Outcome run =
      run_program(with_own_sys(terrace({"generate", "--quiet", "-p", "a", "-n", "1", "--node", node.address(), "--link",
                                        "ucx", "--interface", "m3", "--trusted-net", net})));
  EXPECT_EQ(run.exit_code, kFailureCode);
  EXPECT_THAT(run.err, HasSubstr("not in " + net + ", the network that UCX may be used in (--trusted-net)"));
}

TEST(UcxRefusals, NodeThatSpeaksTcp_IsNamed) {
  NodeProcess node;
  const Outcome run = run_terrace(
      Arguments{"generate", "--quiet", "-p", "a", "-n", "1", "--node", node.address()} + kUcx, kFailureCode);
  EXPECT_THAT(run.err, HasSubstr("the other end's link is tcp, this one's ucx: give both the same --link"));
}

// Over TCP alone the node would wait for words that never come; what it speaks is asked first.
TEST(UcxRefusals, NodeThatSpeaksUcx_IsNamed) {
  NodeProcess node(kUcx);
  const Outcome run =
      run_terrace({"generate", "--quiet", "-p", "a", "-n", "1", "--node", node.address()}, kFailureCode);
  EXPECT_THAT(run.err, HasSubstr("the other end's link is ucx, this one's tcp: give both the same --link"));
}

}  // namespace ucx_test
}  // namespace terrace::test
