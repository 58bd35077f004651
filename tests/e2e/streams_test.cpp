// Many requests at once on the demo model, on this host alone and over two nodes: each has the bits that
// `terrace generate` gives it alone.
#include <gtest/gtest.h>

#include <random>

#include "common/transport/loopback/loopback.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/generation.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/serve/scheduler/scheduler.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"
#include "tests/unit/coordinator/serve/scheduler/served_model.h"

namespace terrace {
namespace streams_test {

using serve::Request;
using test::GateCoordinator;
using test::GateModel;
using test::must;

constexpr std::uint32_t kMostSlots = 8;
constexpr int kRequests = 12;

// Prompts that begin as a text of the corpus does, each for a length of its own, and then differ.
Request random_request(std::mt19937_64& random, const std::vector<std::int32_t>& corpus) {
  const std::size_t shared = 1 + random() % 100, own = random() % 20;
  std::vector<std::int32_t> prompt(corpus.begin(), corpus.begin() + static_cast<std::ptrdiff_t>(shared));
  for (std::size_t i = 0; i < own; ++i) prompt.push_back(static_cast<std::int32_t>(100 + random() % 500));
  Request request = test::request_for(std::move(prompt), 1 + random() % 24);
  request.sampling.temperature = random() % 2 == 0 ? 0.0f : 0.8f;
  request.sampling.seed = random() % 3;
  return request;
}

// What `terrace generate` makes of requests.
class Generate {
 public:
  Generate() : engine_(must(app::Engine::open(options(), Environment()))) {}
  const text::Tokenizer& tokenizer() { return *must(engine_->tokenizer()); }
  test::Answer run(const Request& request) {
    app::GenerationRequest alone;
    alone.prompt = request.prompt;
    alone.max_tokens = request.max_tokens;
    alone.sampling = request.sampling;
    alone.hash_logits = true;
    const app::Generation made = must(app::generate(*engine_, alone, [](std::string_view) { return Status(); }));
    return {made.tokens, made.logits_xxh3, made.text};
  }

 private:
  static app::ModelOptions options() {
    app::ModelOptions options = test::gate_options(test::demo_model());
    options.threads = 1;
    return options;
  }
  std::unique_ptr<app::Engine> engine_;
};

void run(serve::Scheduler& scheduler, Generate& alone, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::int32_t> corpus = test::corpus_prompt(100);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<test::Heard>> heard;
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(random_request(random, corpus));
    heard.push_back(std::make_shared<test::Heard>());
    const serve::RequestId id = must(scheduler.submit(requests.back(), heard.back()));
    // Arrivals at any place of another one's answer; some leave.
    if (random() % 3 == 0) heard[random() % heard.size()]->wait_for_tokens(random() % 6);
    if (random() % 5 == 0) scheduler.cancel(id);
  }
  for (std::size_t i = 0; i < heard.size(); ++i) {
    ASSERT_TRUE(heard[i]->wait_for_end());
    ASSERT_FALSE(heard[i]->error()) << heard[i]->error()->text();
    const test::Answer expected = alone.run(requests[i]);
    if (heard[i]->reason() == serve::EndReason::kCancelled) {
      EXPECT_TRUE(heard[i]->answer().begins(expected)) << "request " << i << ", cancelled";
    } else {
      EXPECT_EQ(heard[i]->answer(), expected) << "request " << i;
    }
  }
}

class Streams : public testing::Test {
 protected:
  // Over a coordinator with these legs, 4 seeds.
  void run_over(GateCoordinator& coordinator, const std::vector<legs::Leg*>& legs) {
    for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
      serve::SchedulerOptions options;
      options.slots = 1 + static_cast<std::uint32_t>(seed * 5 % kMostSlots);
      options.chunk_rows = 4 + 7 * static_cast<std::uint32_t>(seed);
      const auto scheduler =
          must(serve::Scheduler::make({coordinator.trunk(), alone_.tokenizer(), model_.ops, model_.serial}, options));
      run(*scheduler, alone_, seed);
      if (!legs.empty()) {
        EXPECT_GT(legs.back()->counters().pairs, 0u);
      }
    }
  }

  GateModel model_;
  Generate alone_;
};

TEST_F(Streams, OnThisHost_EachHasTheBitsItHasAlone) {
  GateCoordinator coordinator(model_, model_.share({}, "host=0-31"), model_.slabs.lookup(), model_.kernels, {},
                              2 * kMostSlots);
  run_over(coordinator, {});
}

TEST_F(Streams, OverTwoNodes_EachHasTheBitsItHasAlone) {
  transport::LoopbackTransport transport;
  test::NodeInProcess first(transport, {}), second(transport, {});
  const std::string &a = first.address(), &b = second.address();
  const legs::SessionModel session_model = model_.session_model(model_.kernels);
  auto proving = transport::test::proving(transport);
  const auto open = [&](const std::string& address) {
    return must(legs::NodeSession::open(must(legs::make_grpc_node_control(address, {})), proving, session_model, {}));
  };
  const auto session_a = open(a), session_b = open(b);
  const legs::OwnerTable owners = model_.share({a, b}, "host=0-3," + a + "=4-17," + b + "=18-31");
  const auto quiet = [](const legs::ShareProgress&) {};
  ASSERT_TRUE(session_a->take_share(owners, 1, quiet).ok());
  ASSERT_TRUE(session_b->take_share(owners, 2, quiet).ok());
  GateCoordinator coordinator(model_, owners, model_.slabs.lookup(), model_.kernels,
                              {&session_a->leg(), &session_b->leg()}, 2 * kMostSlots, false, arch::Overlap::kOn);
  run_over(coordinator, {&session_a->leg(), &session_b->leg()});
}

}  // namespace streams_test
}  // namespace terrace
