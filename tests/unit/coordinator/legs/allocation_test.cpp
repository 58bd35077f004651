// Once warm, a step's legs allocate nothing: operator new is replaced by one that counts the calls of one thread (the
// fake nodes beside it may do as they like).
#include <gtest/gtest.h>

#include <atomic>

#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/node_leg.h"
#include "tests/unit/coordinator/legs/failure_parts.h"
#include "tests/unit/coordinator/legs/fake_node.h"
#include "tests/unit/count_allocations.h"

namespace terrace::legs {
namespace {

using test::FakeNode;
using test::kExperts;
using test::Peer;
using test::Routed;
using test::Sums;

// Real time until it flies. Then whatever does not come within a millisecond is late, and now and then what would. It
// flies to limits alone: over a wait for the disk it would pass the limit at which a node is lost.
class FlyingClock final : public StepClock {
 public:
  void fly() { flies_ = true; }
  TimePoint now() override { return steady_clock().now() + ahead_; }
  void wait(std::span<pollfd> entries, TimePoint until) override {
    const TimePoint start = now();
    const bool flies = flies_ && until - start < kLongestWait / 2;
    const bool blind = flies && ++waits_ % 7 == 0;
    const TimePoint real = flies ? std::min(until, start + std::chrono::milliseconds(1)) : until;
    if (!blind) steady_clock().wait(entries, real - ahead_);
    const bool came = std::any_of(entries.begin(), entries.end(), [](const pollfd& e) { return e.revents != 0; });
    if (flies && (blind || !came)) ahead_ += std::max(Duration(0), until - now());
  }

 private:
  bool flies_ = false;
  std::uint64_t waits_ = 0;
  Duration ahead_{0};
};

// A host and two nodes over TCP (loopback delivers into the peer's memory on the sender's thread: it would be counted).
class WholeStep : public testing::Test {
 protected:
  class Node {
   public:
    Node(transport::Transport& transport, const test::TestModel& model, const std::string& name,
         StepClock* clock = nullptr)
        : clock_(clock), brain_(model), node_(transport, [this](Peer& peer, const wire::Frame& frame) {
            if (mind_manners(peer, frame)) return;
            held_.wait(true);
            for (const test::Reply& reply : brain_.replies(frame)) reply.send(peer);
          }) {
      NodeLegOptions options;
      options.name = name;
      options.limits = model.limits();
      auto latency = open(transport, name, wire::Lane::kLatency);
      leg_ = std::make_unique<NodeLeg>(options, std::move(latency), open(transport, name, wire::Lane::kBulk));
    }
    NodeLeg* leg() { return leg_.get(); }
    // From here on no batch is answered; those that have come are once it lets go.
    void hold() { held_ = true; }
    void let_go() {
      held_ = false;
      held_.notify_all();
    }

   private:
    std::unique_ptr<Lane> open(transport::Transport& transport, const std::string& name, wire::Lane which) {
      LaneOptions options;
      options.node = name;
      options.data_address = node_.address();
      options.lane = which;
      options.session = 9;
      options.largest_frame = std::uint64_t{1} << 24;
      options.clock = clock_;
      auto lane = Lane::open(transport, options);
      TERRACE_CHECK(lane.ok(), "a lane opens");
      return std::move(*lane);
    }
    StepClock* const clock_;
    std::atomic<bool> held_ = false;
    test::NodeBrain brain_;
    FakeNode node_;
    std::unique_ptr<NodeLeg> leg_;
  };

  static OwnerTable owners_of(std::size_t n_legs) {
    std::vector<std::uint16_t> owners(3 * kExperts);
    for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i * 7 / 3 % n_legs);
    return OwnerTable(test::kEpoch, std::vector<std::string>(n_legs, "leg"), 3, kExperts, std::move(owners));
  }

  void step(RoutedExperts& experts, const Routed& routed, Sums& sums) {
    const Status submitted = experts.submit(routed.view);
    if (!submitted.ok()) FAIL() << submitted.error().text();
    const Status collected = experts.collect(sums.view(), sums.failed);
    if (!collected.ok()) FAIL() << collected.error().text();
  }

  // Batches of each size for each layer, and their sums, which one leg with all experts has computed.
  struct Work {
    std::vector<std::unique_ptr<Routed>> steps;
    std::vector<Sums> sums, right;
  };
  Work work_of_the_host_alone() {
    const OwnerTable all = owners_of(1);
    HostLeg alone(all, model_.lookup(), model_.kernels, serial_, model_.ops);
    Dispatcher together(all, {&alone}, model_.kernels, test::kTopK, serial_, model_.ops);
    terrace::test::Rng rng(test::kSeed);
    Work work;
    for (const std::uint32_t n_rows : {1u, 5u, 300u})
      for (std::uint32_t layer = 0; layer < model_.n_layers(); ++layer) {
        const Priority priority = n_rows < 300 ? Priority::kDecode : Priority::kPrompt;
        work.steps.push_back(std::make_unique<Routed>(layer, n_rows, priority, rng));
        work.sums.emplace_back(n_rows);
        work.right.emplace_back(n_rows);
        step(together, *work.steps.back(), work.right.back());
      }
    return work;
  }
  // How long rows and batches are kept, and how many are open at once at a leg, depends on when bytes go and come: a
  // round that is like one before it shows what happens once warm.
  static void expect_a_round_without(FunctionRef<void()> round, int most_rounds = 20) {
    std::size_t least = ~std::size_t{0};
    for (int i = 0; i < most_rounds && least != 0; ++i) {
      const std::size_t before = terrace::test::allocations_of_this_thread();
      round();
      least = std::min(least, terrace::test::allocations_of_this_thread() - before);
    }
    EXPECT_EQ(least, 0u) << "allocations of a round";
  }

  test::TestModel model_;
  transport::TcpTransport transport_;
  Serial serial_;
  Node box1_{transport_, model_, "box1:9000"}, box2_{transport_, model_, "box2:9000"};
};

TEST_F(WholeStep, OverTwoNodes_ExactAndWithoutAllocationsOnceWarm) {
  const OwnerTable owners = owners_of(3);
  HostLeg host(owners, model_.lookup(), model_.kernels, serial_, model_.ops);
  host.set_meanwhile([this] {
    box1_.leg()->progress();
    box2_.leg()->progress();
  });
  Dispatcher spread(owners, {&host, box1_.leg(), box2_.leg()}, model_.kernels, test::kTopK, serial_, model_.ops);

  auto [steps, sums, right] = work_of_the_host_alone();
  // Layer by layer, and with the next one under way, as the halves of a step are.
  const auto round = [&] {
    for (std::size_t i = 0; i < steps.size(); ++i) step(spread, *steps[i], sums[i]);
    ASSERT_TRUE(spread.submit(steps[0]->view).ok());
    for (std::size_t i = 1; i <= steps.size(); ++i) {
      if (i < steps.size()) {
        ASSERT_TRUE(spread.submit(steps[i]->view).ok());
      }
      ASSERT_TRUE(spread.collect(sums[i - 1].view(), sums[i - 1].failed).ok());
    }
  };
  for (int i = 0; i < 12; ++i) round();
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(sums[i], right[i]) << "step " << i;

  expect_a_round_without(round);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(sums[i], right[i]) << "step " << i;
}

// Late batches are hedged, the node is skipped until it answers, and one answers beside the backstop: all of it again
// and again.
TEST_F(WholeStep, WithHedgesAndSkippedBatches_ExactAndWithoutAllocationsOnceWarm) {
  const OwnerTable owners = owners_of(3);
  FlyingClock clock;
  test::TestBackstop backstop(model_, serial_, true);
  auto host = std::make_shared<HostLeg>(owners, model_.lookup(), model_.kernels, serial_, model_.ops);
  Node slow1(transport_, model_, "box1:9000", &clock), slow2(transport_, model_, "box2:9000", &clock);
  clock.fly();
  const auto borrowed = [](Leg* leg) { return std::shared_ptr<Leg>(std::shared_ptr<void>(), leg); };
  Dispatcher hedged(DispatcherParts{
      .epoch = make_epoch(OwnerTable(test::kEpoch, {"host", "box1:9000", "box2:9000"}, 3, kExperts,
                                     std::vector<std::uint16_t>(owners.owners(0).data(), owners.owners(0).data() + 24)),
                          {host, borrowed(slow1.leg()), borrowed(slow2.leg())}),
      .kernels = model_.kernels,
      .top_k = test::kTopK,
      .parallel = serial_,
      .ops = model_.ops,
      .backstop = backstop.backstop.get(),
      .clock = &clock});

  auto [steps, sums, right] = work_of_the_host_alone();
  const auto round = [&] {
    for (std::size_t i = 0; i < steps.size(); ++i) step(hedged, *steps[i], sums[i]);
  };
  // One hedge that wins and one skipped batch, however fast the nodes are; then as it comes.
  slow1.hold();
  step(hedged, *steps.back(), sums.back());
  step(hedged, *steps.back(), sums.back());
  slow1.let_go();
  const LegCounters forced = hedged.board().find("box1:9000")->report().counters;
  EXPECT_GE(forced.hedges, 1u);
  EXPECT_GE(forced.skipped, 1u);
  EXPECT_GT(forced.hedged_pairs, 0u);
  for (int i = 0; i < 60; ++i) round();
  // How many batches are open at once at a leg depends on when its answers come, and one that becomes suspect has its
  // reason told: a round that is like one before it, and in which none does, shows what happens once warm.
  expect_a_round_without(round, 100);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(sums[i], right[i]) << "step " << i;
}

TEST_F(WholeStep, WithAudits_ExactAndWithoutAllocationsOnceWarm) {
  const OwnerTable owners = owners_of(3);
  auto host = std::make_shared<HostLeg>(owners, model_.lookup(), model_.kernels, serial_, model_.ops);
  Auditor auditor({.fraction = 0.5},
                  {model_.kernels, model_.lookup(), [](std::uint32_t, std::uint16_t) { return std::string(); }},
                  serial_, model_.ops);
  const auto borrowed = [](Leg* leg) { return std::shared_ptr<Leg>(std::shared_ptr<void>(), leg); };
  Dispatcher audited(DispatcherParts{.epoch = make_epoch(owners, {host, borrowed(box1_.leg()), borrowed(box2_.leg())}),
                                     .kernels = model_.kernels,
                                     .top_k = test::kTopK,
                                     .parallel = serial_,
                                     .ops = model_.ops,
                                     .auditor = &auditor});

  auto [steps, sums, right] = work_of_the_host_alone();
  const auto round = [&] {
    audited.begin_step();  // other pairs are audited than in the round before
    for (std::size_t i = 0; i < steps.size(); ++i) step(audited, *steps[i], sums[i]);
  };
  for (int i = 0; i < 20; ++i) round();
  expect_a_round_without(round);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(sums[i], right[i]) << "step " << i;
  EXPECT_GT(box1_.leg()->counters().audited_pairs, 0u);
}

TEST_F(WholeStep, AllocationsAreCounted) {
  const std::size_t before = terrace::test::allocations_of_this_thread();
  const Sums sums(4);
  EXPECT_GT(terrace::test::allocations_of_this_thread() - before, 0u);
}

}  // namespace
}  // namespace terrace::legs
