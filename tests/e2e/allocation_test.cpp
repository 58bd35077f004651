// A decode step of the whole system allocates nothing once warm: coordinator and node in one process, each operator new
// of any thread counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/generation.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "kernels/cpu/ops/args.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/node_in_process.h"
#include "tests/e2e/support/process.h"
#include "tests/unit/count_allocations.h"

namespace terrace {
namespace {

using test::GateCoordinator;
using test::GateModel;
using test::must;

constexpr std::uint32_t kBlock = kernels::kKvBlockPositions;
constexpr int kWarmUp = 3;  // blocks

// One stream that is decoded block of positions by block; the cache's memory is taken before, as `generate` does.
class Decoding {
 public:
  explicit Decoding(arch::Trunk& trunk) : trunk_(trunk), stream_(must(trunk.open_stream())) {
    trunk.cache().set_aside(stream_, trunk.context());
  }
  ~Decoding() { trunk_.close_stream(stream_); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  // operator new of all threads during the 32 steps of a block.
  std::size_t next_block() {
    const std::size_t before = test::allocations();
    for (std::uint32_t i = 0; i < kBlock; ++i) step();
    return test::allocations() - before;
  }
  // The same of a block as one batch of a prompt.
  std::size_t next_prompt() {
    std::array<arch::StepRow, kBlock> rows;
    const std::uint32_t first = trunk_.length(stream_);
    for (std::uint32_t i = 0; i < kBlock; ++i)
      rows[i] = {stream_, first + i, static_cast<std::int32_t>((first + i) * 37 % 1000), i + 1 == kBlock};
    const std::size_t before = test::allocations();
    const auto result = trunk_.step(rows);
    const std::size_t made = test::allocations() - before;
    EXPECT_TRUE(result.ok()) << result.error().text();
    return made;
  }

 private:
  void step() {
    const std::uint32_t position = trunk_.length(stream_);
    const arch::StepRow row = {stream_, position, static_cast<std::int32_t>(position * 37 % 1000), true};
    const auto result = trunk_.step({&row, 1});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_TRUE(result->failed.empty());
  }

  arch::Trunk& trunk_;
  arch::StreamId stream_;
};

TEST(DecodeAllocations, HostAlone_None) {
  const GateModel model;
  GateCoordinator coordinator(model, model.share({}, "host=0-31"), model.slabs.lookup(), model.kernels);
  Decoding decoding(coordinator.trunk());
  for (int i = 0; i < kWarmUp; ++i) decoding.next_block();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(decoding.next_block(), 0u) << "block " << i;
}

struct Case {
  const char* name;
  bool tcp;
  Waiting waiting;
  const char* host;  // its experts; the node has the others
  const char* node;
  bool seal = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DecodeAllocationsWithNode : public testing::TestWithParam<Case> {};

// Steps of the trunk over a node, counted by `next`: the least of some after others that warm it up.
void expect_none(const Case& c, std::size_t (Decoding::*next)()) {
  const GateModel model;
  transport::TcpTransport tcp;
  transport::LoopbackTransport loopback;
  transport::Transport& transport = c.tcp ? static_cast<transport::Transport&>(tcp) : loopback;
  node::LimitOptions limits;
  limits.seal = c.seal;
  test::NodeInProcess node(transport, limits, c.waiting);
  const legs::SessionModel session_model = model.session_model(model.kernels);
  legs::NodeSessionOptions options;
  options.waiting = c.waiting;
  options.seal = c.seal;
  auto proving = transport::test::proving(transport);
  const auto session = must(
      legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving, session_model, options));
  const legs::OwnerTable owners = model.share({node.address()}, c.host + node.address() + c.node);
  ASSERT_TRUE(session->take_share(owners, 1, [](const legs::ShareProgress&) {}).ok());
  GateCoordinator coordinator(model, owners, model.slabs.lookup(), model.kernels, {&session->leg()});
  Decoding decoding(coordinator.trunk());
  for (int i = 0; i < kWarmUp; ++i) (decoding.*next)();
  // gRPC renews the lease every few seconds and allocates as it likes: a block that it leaves alone shows what ours do.
  std::size_t least = ~std::size_t{0};
  for (int i = 0; i < 12 && least != 0; ++i) least = std::min(least, (decoding.*next)());
  EXPECT_EQ(least, 0u) << "in 32 tokens";
}

TEST_P(DecodeAllocationsWithNode, NoneOnEitherSide) { expect_none(GetParam(), &Decoding::next_block); }
// Over the bulk lane.
TEST_P(DecodeAllocationsWithNode, NoneOnEitherSideInAPrompt) { expect_none(GetParam(), &Decoding::next_prompt); }

INSTANTIATE_TEST_SUITE_P(Cases, DecodeAllocationsWithNode,
                         testing::Values(Case{"Loopback", false, Waiting::kSpinThenPark, "host=0-15,", "=16-31"},
                                         Case{"LoopbackOneCore", false, Waiting::kBlock, "host=0-15,", "=16-31"},
                                         Case{"Tcp", true, Waiting::kSpinThenPark, "host=0-15,", "=16-31"},
                                         Case{"TcpOneCore", true, Waiting::kBlock, "host=0-15,", "=16-31"},
                                         Case{"SealedTcpOneCore", true, Waiting::kBlock, "host=0-15,", "=16-31", true},
                                         Case{"TcpEverythingOnTheNode", true, Waiting::kBlock, "", "=0-31"}),
                         [](const auto& test) { return test.param.name; });

// operator new of all threads when each token of a generation was made: sampled, shown, and its step still to come.
std::vector<std::size_t> allocations_at_tokens(app::Engine& engine, std::uint64_t tokens) {
  std::vector<std::size_t> at;
  at.reserve(tokens + 1);
  app::GenerationRequest request;
  request.prompt = must(must(engine.tokenizer())->encode("Momo the penguin", {}));
  request.max_tokens = tokens;
  request.sampling.temperature = 3.0f;  // a text that goes on, with every kind of character
  request.sampling.top_k = 0;
  request.sampling.repeat_penalty = 1.1f;
  request.sampling.seed = 3;
  request.stops = {"a stop string that never comes", "\n\n\n\n\n\n\n\n"};
  request.control_as_text = true;
  request.hash_logits = true;
  request.interrupted = [&at] {
    at.push_back(test::allocations());
    return false;
  };
  const auto made = must(app::generate(engine, request, [](std::string_view) { return Status(); }));
  EXPECT_EQ(made.stop_reason, app::StopReason::kLimit) << "choose another seed";
  return at;
}

// All of `generate` but the program's own output: step, sampler, logit hashes, text, stop strings.
TEST(GenerateAllocations, NoneFromTokenToToken) {
  const auto engine =
      must(app::Engine::open(test::gate_options(), Environment({{"XDG_CACHE_HOME", test::cache_dir().string()}})));
  const std::vector<std::size_t> at = allocations_at_tokens(*engine, 6 * kBlock);
  ASSERT_GE(at.size(), 6 * kBlock);
  EXPECT_EQ(at.back() - at[kWarmUp], 0u);
}

TEST(DecodeAllocations, AreCounted) {
  const std::size_t before = test::allocations();
  ::operator delete(::operator new(8));
  EXPECT_GT(test::allocations() - before, 0u);
}

}  // namespace
}  // namespace terrace
