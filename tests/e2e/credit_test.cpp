// Credit is enough when it is one frame: a node that takes one batch at a time completes a prompt of 512 tokens, over
// each transport, to the bit.
#include <gtest/gtest.h>

#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"

namespace terrace {
namespace credit_test {

using test::GateCoordinator;
using test::GateModel;
using test::GateRun;
using test::must;

constexpr std::size_t kPrompt = 512;
constexpr std::uint64_t kTokens = 8;

// One frame a lane, and no more bytes than one largest batch.
constexpr node::LimitOptions kOneFrame = {.batch_frames = 1, .batch_windows = 1, .weight_frames = 1};

template <class TransportType>
class OneFrameWindow : public testing::Test {};
using Transports = testing::Types<transport::TcpTransport, transport::LoopbackTransport>;
struct TransportName {
  template <class TransportType>
  static std::string GetName(int) {
    return TransportType().name();
  }
};
TYPED_TEST_SUITE(OneFrameWindow, Transports, TransportName);

// Sealed frames are longer on the link: credit, windows and limits count that to the byte at both ends.
TYPED_TEST(OneFrameWindow, PromptOf512Tokens_CompletesWithTheSameBits) {
  const GateModel model;
  const std::vector<std::int32_t> prompt = test::corpus_prompt(kPrompt);
  const legs::OwnerTable host_only = model.share({}, "host=0-31");
  const GateRun expected =
      GateCoordinator(model, host_only, model.slabs.lookup(), model.kernels).run(prompt, kPrompt, kTokens);

  for (const bool seal : {false, true}) {
    TypeParam transport;
    node::LimitOptions limits = kOneFrame;
    limits.seal = seal;
    test::NodeInProcess node(transport, limits);
    const legs::SessionModel session_model = model.session_model(model.kernels);
    auto proving = transport::test::proving(transport);
    legs::NodeSessionOptions options;
    options.seal = seal;
    const auto session = must(legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving,
                                                      session_model, options));
    ASSERT_EQ(node.sessions().all().size(), 1u);
    EXPECT_EQ(node.sessions().all()[0]->data_cipher() == security::Cipher::kPlain, !seal);
    ASSERT_EQ(node.sessions().all()[0]->limits().batches.frames, 1u);
    const legs::OwnerTable owners = model.share({node.address()}, "host=0-3," + node.address() + "=4-31");
    const Status ready = session->take_share(owners, 1, [](const legs::ShareProgress&) {});
    ASSERT_TRUE(ready.ok()) << ready.error().text();

    for (const std::uint32_t batch : {512u, 64u}) {
      GateCoordinator coordinator(model, owners, model.slabs.lookup(), model.kernels, {&session->leg()});
      EXPECT_EQ(test::difference(expected, coordinator.run(prompt, batch, kTokens)), std::nullopt)
          << batch << (seal ? " sealed" : " plain");
    }
  }
}

}  // namespace credit_test
}  // namespace terrace
