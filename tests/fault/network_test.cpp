// Generations over a real link of another rate, delay and loss: a node in a network namespace of its own, over TCP.
// Slower is all that a link can make them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/transport/faulty/faulty.h"
#include "common/transport/tcp/tcp.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/relay.h"
#include "tests/fault/fault_world.h"

namespace terrace {
namespace network_test {

using test::FaultWorld;
using test::Machine;
using test::NodeInProcess;
using test::Relay;
using transport::Direction;
using transport::FaultScript;
using transport::FaultyTransport;

const auto* const kNetworkOfItsOwn = test::own_network();

// A node on another machine; what comes in at either end is held for `delay` by `faulty`, netem where `kernel` says so.
struct Link {
  unsigned megabits = 0;  // 0: as fast as it goes
  unsigned delay_us = 0;
  unsigned lost_one_in = 0;
  bool ipv6 = false;
  bool kernel = false;
};

std::string name(const Link& link) {
  std::string text = link.megabits == 0 ? "Unlimited" : fmt::format("{}Mbit", link.megabits);
  if (link.delay_us != 0) text += fmt::format("_{}us", link.delay_us);
  if (link.kernel) text += "_Netem";
  if (link.lost_one_in != 0) text += fmt::format("_OneIn{}Lost", link.lost_one_in);
  return text + (link.ipv6 ? "_IPv6" : "_IPv4");
}

// What gtest, and with it ctest, shows of a parameter.
std::ostream& operator<<(std::ostream& out, const Link& link) { return out << name(link); }

class NetworkLink : public testing::TestWithParam<Link> {
 protected:
  void SetUp() override {
    std::vector<std::string> needs = {"root", "netns"};
    if (GetParam().megabits != 0) needs.emplace_back("tbf");
    if (GetParam().lost_one_in != 0) needs.emplace_back("nft");
    if (GetParam().kernel) needs.emplace_back("netem");
    const std::string lacking = test::lacking(needs);
    if (!lacking.empty()) GTEST_SKIP() << lacking;
  }
  FaultScript delay() const {
    FaultScript script;
    if (!GetParam().kernel)
      script.delay[static_cast<std::size_t>(Direction::kIn)] = std::chrono::microseconds(GetParam().delay_us);
    return script;
  }
};

std::vector<Link> all_links() {
  std::vector<Link> links = {{}, {.ipv6 = true}, {.lost_one_in = 50}, {.lost_one_in = 50, .ipv6 = true}};
  // Each by `faulty`, and by netem where the kernel has it.
  for (const bool kernel : {false, true}) {
    for (const unsigned megabits : {1000u, 2500u, 10000u})
      for (const unsigned delay_us : {25u, 60u, 100u})
        links.push_back({.megabits = megabits, .delay_us = delay_us, .kernel = kernel});
    links.push_back({.megabits = 1000, .delay_us = 100, .lost_one_in = 100, .ipv6 = true, .kernel = kernel});
  }
  return links;
}
INSTANTIATE_TEST_SUITE_P(Links, NetworkLink, testing::ValuesIn(all_links()),
                         [](const auto& test) { return name(test.param); });

TEST_P(NetworkLink, GenerationWithANodeBehindIt_SameTokens) {
  const Link& link = GetParam();
  Machine machine(1);
  if (link.megabits != 0) machine.set_rate(link.megabits);
  if (link.lost_one_in != 0) machine.set_loss(link.lost_one_in);
  if (link.kernel) machine.set_delay(link.delay_us);

  const auto tcp = std::make_shared<transport::TcpTransport>();
  FaultyTransport here(tcp, delay()), there(tcp, delay());
  // The first of the two, so that gRPC's own threads, which connect, begin on this side.
  NodeInProcess near(*tcp, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
  std::unique_ptr<NodeInProcess> far;
  const std::string host = link.ipv6 ? "[" + machine.ipv6() + "]" : machine.ipv4();
  machine.inside([&] {
    far = std::make_unique<NodeInProcess>(there, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell(),
                                          host);
  });
  ASSERT_TRUE(far->address().starts_with(host)) << far->address();
  Relay relay(far->address(), far->data_port());  // since a link beyond loopback needs credentials

  const FaultWorld world;
  const auto run = world.generate({*far, here, test::kAmple, relay.address()}, {near, *tcp});
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_EQ(test::difference(world.expected(), *run), std::nullopt);
  EXPECT_EQ(run->pairs(), run->expected_pairs);
  EXPECT_TRUE(test::ends_clean(*far));
  if (link.lost_one_in != 0) {
    EXPECT_GT(machine.lost(), 0u) << "nothing was dropped: the test shows nothing";
  }
}

}  // namespace network_test
}  // namespace terrace
