// A session whose prompts and weights travel over several connections each: the same bits, over all of them, in the
// same memory of the node.
#include <gtest/gtest.h>

#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/planner/share.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/counted_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"

namespace terrace {
namespace sockets_test {

using test::GateCoordinator;
using test::GateModel;
using test::GateRun;
using test::must;

struct Case {
  const char* name;
  bool seal;
  std::uint32_t asked;
  std::uint32_t opened;  // as many as the node takes
  node::LimitOptions limits{};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SeveralSockets : public testing::TestWithParam<Case> {};

TEST_P(SeveralSockets, PromptOf512Tokens_TheSameBits) {
  const Case c = GetParam();
  constexpr std::uint64_t kTokens = 4;
  const GateModel model;
  const std::vector<std::int32_t> prompt = test::corpus_prompt(512);
  const GateRun expected = GateCoordinator(model, model.share({}, "host=0-31"), model.slabs.lookup(), model.kernels)
                               .run(prompt, 64, kTokens);

  transport::TcpTransport tcp;
  test::CountedTransport counted(tcp);
  auto proving = transport::test::proving(counted);
  node::LimitOptions limits = c.limits;
  limits.seal = c.seal;
  test::NodeInProcess node(tcp, limits);
  const legs::SessionModel session_model = model.session_model(model.kernels);
  legs::NodeSessionOptions options;
  options.seal = c.seal;
  options.sockets = c.asked;
  const auto session = must(
      legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving, session_model, options));
  EXPECT_EQ(session->sockets(), c.opened);
  EXPECT_EQ(counted.made(), 1 + 2 * c.opened);
  const legs::OwnerTable owners = model.share({node.address()}, "host=0-3," + node.address() + "=4-31");
  const Status ready = session->take_share(owners, 1, [](const legs::ShareProgress&) {});
  ASSERT_TRUE(ready.ok()) << ready.error().text();
  GateCoordinator coordinator(model, owners, model.slabs.lookup(), model.kernels, {&session->leg()});
  EXPECT_EQ(test::difference(expected, coordinator.run(prompt, 64, kTokens)), std::nullopt);
  // Slabs by all of them; prompts by as many as there are batches in flight, which a step alone has one of.
  for (std::uint32_t socket = 0; socket < c.opened; ++socket)
    EXPECT_GE(counted.bytes_sent(1 + c.opened + socket), 10'000u) << "weights, " << socket;
  EXPECT_GE(counted.bytes_sent(1), 10'000u) << "bulk, 0";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SeveralSockets,
    testing::Values(
        Case{"Two", false, 2, 2}, Case{"ThreeSealed", true, 3, 3},
        Case{"FourSealedOfOneFrameEach", true, 4, 4, {.batch_frames = 1, .batch_windows = 1, .weight_frames = 1}},
        Case{"MoreThanANodeTakes", false, 9, 4}),
    [](const auto& test) { return test.param.name; });

// Of a link that an earlier session has measured, while decode batches go, which this test says they do: a node that is
// back and a further share have a quarter, all connections together; the first share has what weights have at all. The
// paces looked at are those of the connections that carry weights, which nothing moves once they are sent: those of
// prompts have their own, from the first time that somebody waits for the node.
TEST(SlabsBesideSteps, AreGivenAQuarterOfTheLink) {
  constexpr std::uint64_t kRate = 400'000'000;
  const GateModel model;
  const legs::SessionModel session_model = model.session_model(model.kernels);
  transport::TcpTransport tcp;
  test::NodeInProcess node(tcp, {});
  const std::vector<std::string> nodes = {node.address()};
  const auto share = [&](const std::string& here, const std::string& there, std::uint64_t epoch) {
    planner::ShareInput input;
    input.nodes = nodes;
    input.n_layers = static_cast<std::uint32_t>(model.experts.layers.size());
    input.n_experts = model.experts.n_experts;
    input.epoch = epoch;
    return must(planner::parse_share("host=" + here + "," + nodes[0] + "=" + there, input));
  };
  for (const std::uint32_t sockets : {1u, 2u})
    for (const bool back : {false, true}) {
      legs::NodeSessionOptions options;
      options.sockets = sockets;
      options.link_rate = kRate;
      options.beside_steps = back;
      options.decode = std::make_shared<transport::DecodeActivity>();
      // And all the time until then, or until a batch goes in truth.
      const auto steps_go_on = [&] { options.decode->seen(legs::Clock::now() + std::chrono::hours(1)); };
      test::CountedTransport counted(tcp);
      auto proving = transport::test::proving(counted);
      const auto session = must(legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving,
                                                        session_model, options));
      steps_go_on();
      const Status ready = session->take_share(share("0-15", "16-31", 1), 1, [](const legs::ShareProgress&) {});
      ASSERT_TRUE(ready.ok()) << ready.error().text();
      const std::uint64_t quarter = kRate / 4 / sockets;
      for (std::uint32_t socket = 0; socket < sockets; ++socket)
        if (back)
          EXPECT_EQ(counted.pace(1 + sockets + socket), quarter);
        else
          EXPECT_GT(counted.pace(1 + sockets + socket), quarter);
      steps_go_on();  // the share was tried with a batch
      std::uint64_t sent = 0;
      const Status further = session->take_further(share("0-3", "4-31", 2), 1, {}, sent);
      ASSERT_TRUE(further.ok()) << further.error().text();
      EXPECT_GT(sent, 0u);
      for (std::uint32_t socket = 0; socket < sockets; ++socket) EXPECT_EQ(counted.pace(1 + sockets + socket), quarter);
    }
}

}  // namespace sockets_test
}  // namespace terrace
