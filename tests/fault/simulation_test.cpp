// Seeded schedules in one process and one thread: dispatcher, node legs, lanes and a backstop over a faulty transport,
// with a clock that only they move. Each seed is another world: its nodes, shares, delays and faults. Whatever happens,
// every layer's sums are those of a run without nodes.
//
// Again     build/release/tests/fault_simulation_test --gtest_filter='Seeds/Simulation.*/17'   runs seeds 170 to 179.
// The same  A seed gives the same run, event by event (SameSeed_SameRun): nothing looks at a real clock, at addresses'
//           order or at another thread.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

#include "common/transport/faulty/faulty.h"
#include "common/transport/loopback/loopback.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/node_leg.h"
#include "tests/fault/faults_by_seed.h"
#include "tests/fault/simulated_model.h"
#include "tests/unit/coordinator/legs/failure_parts.h"
#include "tests/unit/coordinator/legs/fake_node.h"

namespace terrace::legs {
namespace simulation_test {

using namespace std::chrono_literals;
using test::FakeNode;
using test::kExperts;
using test::kTopK;
using test::Peer;
using test::Routed;
using test::simulated_dispatcher;
using test::simulated_model;
using test::Sums;
using transport::FaultyTransport;

constexpr int kSeeds = 300;
constexpr int kSteps = 12;
constexpr std::uint64_t kGreeting = 4;  // frames of both lanes before faults may begin

// One time for all: it moves a little with each look at it, and by a piece of whatever is waited for.
class SimulatedClock final : public StepClock, public transport::FaultClock {
 public:
  using TimePoint = StepClock::TimePoint;
  explicit SimulatedClock(std::uint64_t seed) : random_(seed) {}

  TimePoint now() override { return now_ += 1us; }
  TimePoint now() const override { return now_; }
  void wait(std::span<pollfd>, TimePoint until) override {
    const auto piece = std::chrono::microseconds(1 + random_() % 400);
    now_ = std::max(now_, std::min(until, now_ + piece));
    run_nodes();
  }
  // What a coordinator does elsewhere than in its layers.
  void pass(Duration duration) {
    now_ += duration;
    run_nodes();
  }
  std::vector<std::unique_ptr<FakeNode>> nodes;

 private:
  void run_nodes() {
    for (const auto& node : nodes)
      while (node->step()) {
      }
  }
  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
};

// What a node does with its answers beside what happens to its link.
enum class Manner : std::uint8_t { kHonest, kSilent, kBusy, kRefuses, kWrongRange, kWrongEpoch, kBadSums };

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), clock_(seed + 1), rows_rng_(static_cast<std::uint32_t>(seed)) {
    const std::size_t n_nodes = 1 + random_() % 3;
    std::vector<std::string> names{"host"};
    for (std::size_t i = 0; i < n_nodes; ++i) names.push_back(fmt::format("box{}:9000", i + 1));
    std::vector<std::uint16_t> owners(simulated_model().n_layers() * kExperts);
    for (std::uint16_t& owner : owners) owner = static_cast<std::uint16_t>(random_() % names.size());
    const OwnerTable table(test::kEpoch, names, simulated_model().n_layers(), kExperts, std::move(owners));
    host_ = std::make_shared<HostLeg>(table, simulated_model().lookup(), simulated_model().kernels, serial_,
                                      simulated_model().ops, clock_);
    std::vector<std::shared_ptr<Leg>> legs{host_};
    for (std::size_t i = 0; i < n_nodes; ++i) legs.push_back(open_node(names[i + 1]));
    dispatcher_ =
        simulated_dispatcher(make_epoch(table, std::move(legs)), serial_, *backstop_.backstop, board_, clock_);
    host_->set_meanwhile([this] { dispatcher_->progress(); });
    backstop_.reader->on_read = [this] { clock_.pass(std::chrono::microseconds(random_() % 15'000)); };
  }

  // One layer of a step, or two layers of a step in parts, as a trunk takes them; the fault is an error of the step, or
  // sums of their own.
  void step() {
    std::uint32_t layer = static_cast<std::uint32_t>(random_() % simulated_model().n_layers());
    const bool prompt = random_() % 8 == 0;
    const auto n_rows = static_cast<std::uint32_t>(prompt ? 200 + random_() % 200 : 1 + random_() % 6);
    const auto most_parts = std::min<std::uint32_t>(n_rows, kMostLayersOpen);
    const auto n_parts = static_cast<std::uint32_t>(random_() % 2 == 0 ? 1 + random_() % most_parts : 1);
    clock_.pass(std::chrono::microseconds(random_() % 4 == 0 ? random_() % 1'000'000 : random_() % 1000));
    dispatcher_->begin_step();
    std::deque<Routed> open;
    for (std::uint32_t nth = 0; nth < (n_parts > 1 ? 2 * n_parts : 1); ++nth) {  // part by part, layer by layer
      if (nth == n_parts) layer = (layer + 1) % simulated_model().n_layers();
      if (nth >= n_parts) {
        collect(open.front());
        if (testing::Test::HasFatalFailure()) return;
        open.pop_front();
      }
      clock_.pass(std::chrono::microseconds(n_parts > 1 ? random_() % 500 : 0));  // the trunk
      const Routed& routed = open.emplace_back(layer, (n_rows + nth % n_parts) / n_parts,
                                               prompt ? Priority::kPrompt : Priority::kDecode, rows_rng_);
      const Status submitted = dispatcher_->submit(routed.view);
      ASSERT_TRUE(submitted.ok()) << submitted.error().text();
    }
    for (const Routed& routed : open) {
      collect(routed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  // All that was counted and how long it took: two runs of a seed are compared by it.
  std::string account() {
    std::string all = fmt::format("{} ns", clock_.now().time_since_epoch().count());
    for (const LegReport& leg : board_.report()) {
      all += fmt::format("\n{} {} ({}):", leg.name, name(leg.state), leg.reason);
      // Real time, and what is measured by it.
      for (const LegCounter counter : all_counters())
        if (counter != &LegCounters::compute_us && counter != &LegCounters::wait_us)
          all += fmt::format(" {}", leg.counters.*counter);
    }
    return all;
  }
  std::uint64_t pairs_counted() {
    std::uint64_t counted = 0;
    for (const LegReport& leg : board_.report()) counted += leg.counters.pairs;
    return counted;
  }
  std::uint64_t pairs() const { return pairs_; }
  LegCounters all_counted() {
    LegCounters counted;
    for (const LegReport& leg : board_.report()) counted += leg.counters;
    return counted;
  }

 private:
  void collect(const Routed& routed) {
    Sums sums(routed.view.n_rows);
    const Status collected = dispatcher_->collect(sums.view(), sums.failed);
    ASSERT_TRUE(collected.ok()) << collected.error().text();
    ASSERT_EQ(sums, test::sums_without_nodes(routed)) << "other sums than without nodes";
    pairs_ += routed.view.n_rows * kTopK;
  }

  std::shared_ptr<Leg> open_node(const std::string& name) {
    auto network = std::make_shared<transport::LoopbackTransport>();
    const Manner manner = random_() % 3 == 0 ? static_cast<Manner>(random_() % 7) : Manner::kHonest;
    const std::uint64_t bad_batch = random_() % 10;
    clock_.nodes.push_back(std::make_unique<FakeNode>(
        *network,
        [this, manner, bad_batch, n = std::uint64_t{0}](Peer& peer, const wire::Frame& frame) mutable {
          if (mind_manners(peer, frame)) return;
          if (frame.header.type != wire::FrameType::kBatch) return;
          answer(peer, frame, n++ < bad_batch ? Manner::kHonest : manner);
        },
        FakeNode::Stepped{}));
    links_.push_back(std::make_unique<FaultyTransport>(network, test::draw_script(random_, kGreeting), &clock_));
    NodeLegOptions options;
    options.name = name;
    options.limits = simulated_model().limits();
    options.first_limit = std::chrono::milliseconds(5 + random_() % 100);
    auto latency = open_lane(name, wire::Lane::kLatency);
    return std::make_shared<NodeLeg>(options, std::move(latency), open_lane(name, wire::Lane::kBulk));
  }

  std::unique_ptr<Lane> open_lane(const std::string& name, wire::Lane which) {
    LaneOptions options;
    options.node = name;
    options.data_address = clock_.nodes.back()->address();
    options.lane = which;
    options.session = 5;
    options.largest_frame = std::uint64_t{1} << 24;
    options.receive_window = std::uint64_t{1} << 26;
    options.clock = &clock_;
    auto lane = Lane::open(*links_.back(), options);
    TERRACE_CHECK(lane.ok(), "faults begin behind the greetings");
    return std::move(*lane);
  }

  void answer(Peer& peer, const wire::Frame& frame, Manner manner) {
    if (manner == Manner::kSilent) return;
    if (manner == Manner::kRefuses) return peer.send_error(frame.header.sequence, ErrorCode::kStaleEpoch, "forgotten");
    if (manner == Manner::kBusy)
      peer.send({.type = wire::FrameType::kBusy, .sequence = frame.header.sequence},
                [](wire::FrameBuilder& builder) { wire::add_busy(builder, {.expected_us = 30'000}); });
    for (test::Reply& reply : brain_.replies(frame)) {
      if (manner == Manner::kWrongRange) reply.info.range_index += 1;
      if (manner == Manner::kWrongEpoch) reply.header.epoch += 1;
      if (manner == Manner::kBadSums) reply.data.pop_back();
      reply.send(peer);
    }
  }

  std::mt19937_64 random_;
  SimulatedClock clock_;
  terrace::test::Rng rows_rng_;
  Serial serial_;
  LegBoard board_;
  test::NodeBrain brain_{simulated_model()};
  test::TestBackstop backstop_{simulated_model(), serial_};
  std::vector<std::unique_ptr<FaultyTransport>> links_;
  std::shared_ptr<HostLeg> host_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::uint64_t pairs_ = 0;
};

class Simulation : public testing::TestWithParam<int> {};

// Ten seeds a test, so that a failing one is found quickly and the list of tests stays short.
constexpr int kSeedsATest = 10;

TEST_P(Simulation, AnySchedule_TheSumsOfARunWithoutNodes) {
  for (int i = 0; i < kSeedsATest; ++i) {
    const int seed = GetParam() * kSeedsATest + i;
    World world(static_cast<std::uint64_t>(seed));
    for (int step = 0; step < kSteps; ++step) {
      world.step();
      ASSERT_FALSE(HasFatalFailure()) << fmt::format(
          "seed {}, step {}; again: --gtest_filter='Seeds/Simulation.*/{}'\n{}", seed, step, GetParam(),
          world.account());
    }
    EXPECT_EQ(world.pairs_counted(), world.pairs()) << "seed " << seed << ": a pair is nobody's, or counted twice\n"
                                                    << world.account();
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, testing::Range(0, kSeeds / kSeedsATest));

TEST(Simulations, SameSeed_SameRun) {
  for (const std::uint64_t seed : {1u, 5u, 8u, 12u, 33u}) {
    World first(seed), second(seed);
    for (int step = 0; step < kSteps; ++step) {
      first.step();
      second.step();
    }
    EXPECT_EQ(first.account(), second.account()) << "seed " << seed;
  }
}

// That the schedules reach what they are for.
TEST(Simulations, TogetherTheyMeetEveryEnd) {
  LegCounters counted;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    World world(seed);
    for (int step = 0; step < kSteps; ++step) world.step();
    counted += world.all_counted();
  }
  EXPECT_GT(counted.hedges, 10u);
  EXPECT_GT(counted.false_hedges, 0u);
  EXPECT_GT(counted.skipped, 10u);
  EXPECT_GT(counted.losses, 10u);
  EXPECT_GT(counted.wrongs, 3u);
  EXPECT_GT(counted.refused, 3u);
  EXPECT_GT(counted.hedged_pairs, 100u);
  EXPECT_LT(counted.hedged_pairs, counted.pairs / 2) << "nodes do most of it";
}

}  // namespace simulation_test
}  // namespace terrace::legs
