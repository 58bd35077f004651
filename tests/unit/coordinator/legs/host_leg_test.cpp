#include "coordinator/legs/host_leg.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/coordinator/legs/failure_parts.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs {
namespace host_leg_test {

using test::kExperts;
using test::Sums;

const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

// owners: [n_layers, experts] 0: the host.
OwnerTable table(std::vector<std::uint16_t> owners) {
  return OwnerTable(test::kEpoch, {"host", "box1:9000", "box2:9000"}, model().n_layers(), kExperts, std::move(owners));
}
OwnerTable all_here() { return table(std::vector<std::uint16_t>(model().n_layers() * kExperts, 0)); }

TEST(HostLeg, LooksUpOwnedSlabsOnly) {
  terrace::test::Rng rng(test::kSeed);
  std::vector<std::uint16_t> of(model().n_layers() * kExperts);
  for (std::uint16_t& owner : of) owner = static_cast<std::uint16_t>(rng() % 3);
  const OwnerTable owners = table(of);
  std::set<std::pair<std::uint32_t, std::uint16_t>> asked;
  const SlabLookup lookup = [&](std::uint32_t layer, std::uint16_t expert) {
    EXPECT_EQ(owners.owners(layer)[expert], 0) << layer << ", " << expert;
    EXPECT_TRUE(asked.insert({layer, expert}).second) << "asked twice";
    return model().lookup()(layer, expert);
  };
  Serial serial;
  const HostLeg host(owners, lookup, model().kernels, serial, model().ops);
  EXPECT_EQ(asked.size(), owners.n_slabs(0));
  EXPECT_EQ(host.experts(), owners.n_slabs(0));
}

TEST(HostLegDeathTest, ExpertOfAnotherLeg_Aborts) {
  terrace::test::Rng rng(test::kSeed);
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts, 0);
  owners[kExperts + 3] = 1;  // expert 3 of layer 1
  Serial serial;
  HostLeg host(table(owners), model().lookup(), model().kernels, serial, model().ops);
  test::TestBatch batch(model(), 1, 4, 4, kExperts, Priority::kDecode, rng);
  Sums sums(4);
  std::erase_if(batch.pairs, [](const kernels::Pair& pair) { return pair.expert == 3; });
  batch.batch.pairs = batch.pairs;
  EXPECT_TRUE(host.collect(*host.submit(batch.batch), sums.view(), sums.failed).ok());
  batch.pairs = {{0, 3, 1.0f}};
  batch.batch.pairs = batch.pairs;
  const Ticket ticket = *host.submit(batch.batch);
  EXPECT_DEATH((void)host.collect(ticket, sums.view(), sums.failed), "");
}

TEST(HostLeg, SeveralOpenInAnyOrder_AndTheHookRunsBetweenSlices) {
  terrace::test::Rng rng(test::kSeed);
  const OwnerTable owners = all_here();
  Serial serial;
  HostLeg host(owners, model().lookup(), model().kernels, serial, model().ops);
  int calls = 0;
  host.set_meanwhile([&] { ++calls; });
  const test::TestBatch small(model(), 1, 4, 4, kExperts, Priority::kDecode, rng);
  const test::TestBatch large(model(), 2, 600, 600, kExperts, Priority::kPrompt, rng);
  const Ticket first = *host.submit(small.batch), second = *host.submit(large.batch);
  Sums sums(600), few(4);
  ASSERT_TRUE(host.collect(second, sums.view(), sums.failed).ok());
  EXPECT_EQ(sums, local_sums(model(), large.batch));
  EXPECT_GT(calls, 0);
  ASSERT_TRUE(host.collect(first, few.view(), few.failed).ok());
  EXPECT_EQ(few, local_sums(model(), small.batch));
  EXPECT_EQ(host.counters().batches, 2u);
  EXPECT_EQ(host.counters().rows, 604u);
  EXPECT_EQ(host.counters().pairs, small.pairs.size() + large.pairs.size());
}

// Within a slice, too: a part of a prompt is one of some milliseconds, in which a link would stand still.
TEST(HostLeg, OneSliceOfAPrompt_TheHookRunsAsOftenAsTimePasses_AndNotInDecode) {
  terrace::test::Rng rng(test::kSeed);
  const OwnerTable owners = all_here();
  Serial serial;
  test::ManualClock clock;
  HostLeg host(owners, model().lookup(), model().kernels, serial, model().ops, clock);
  int calls = 0;
  StepClock::Duration step{};
  host.set_meanwhile([&] {
    ++calls;
    clock.wait({}, clock.now() + step);
  });
  Sums sums(100);
  const auto calls_of = [&](Priority priority) {
    const test::TestBatch batch(model(), 2, 100, 100, kExperts, priority, rng);
    calls = 0;
    EXPECT_TRUE(host.collect(*host.submit(batch.batch), sums.view(), sums.failed).ok());
    EXPECT_EQ(sums, local_sums(model(), batch.batch));
    sums = Sums(100);
    return calls;
  };
  EXPECT_EQ(calls_of(Priority::kDecode), 0);
  EXPECT_EQ(calls_of(Priority::kPrompt), 1);  // the clock nearly stands
  step = PollingParallel::kEvery;
  clock.wait({}, clock.now() + step);
  EXPECT_GT(calls_of(Priority::kPrompt), 5);
}

}  // namespace host_leg_test
}  // namespace terrace::legs
