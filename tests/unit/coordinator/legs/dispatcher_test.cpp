#include "coordinator/legs/dispatcher.h"

#include <gtest/gtest.h>

#include <map>

#include "common/threads/pool.h"
#include "coordinator/legs/host_leg.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs {
namespace dispatcher_test {

using test::kExperts;
using test::kTopK;
using test::kWidth;
using test::Routed;
using test::Sums;

const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

OwnerTable table(std::size_t n_legs, std::vector<std::uint16_t> owners) {
  std::vector<std::string> names{"host"};
  for (std::size_t i = 1; i < n_legs; ++i) names.push_back("node" + std::to_string(i));
  return OwnerTable(test::kEpoch, names, model().n_layers(), kExperts, std::move(owners));
}
OwnerTable random_table(std::size_t n_legs, terrace::test::Rng& rng) {
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts);
  for (std::uint16_t& owner : owners) owner = static_cast<std::uint16_t>(rng() % n_legs);
  return table(n_legs, owners);
}

// What was asked of all legs, in order.
struct Journal {
  struct Entry {
    std::size_t leg;
    bool submit;
  };
  std::vector<Entry> entries;
};

// Computes at collect() and checks that what it borrowed is still as it was.
class FakeLeg final : public Leg {
 public:
  FakeLeg(std::size_t index, const OwnerTable& owners, Journal& journal)
      : index_(index), owners_(owners), journal_(journal), name_(owners.leg_name(index)) {}

  const std::string& name() const override { return name_; }
  LegKind kind() const override { return LegKind::kNode; }
  LegState state() const override { return LegState::kOk; }
  std::uint64_t experts() const override { return 0; }
  LegCounters counters() const override { return {}; }

  Result<Ticket> submit(const LegBatch& batch) override {
    journal_.entries.push_back({index_, true});
    if (refuse) return Error(ErrorCode::kPeerGone, name_ + " is lost at submit");
    if (open_.size() >= most_open) return Error(ErrorCode::kBusy, name_ + ": one batch is open");
    check(batch);
    open_[++last_] = batch;
    return last_;
  }
  Status collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    journal_.entries.push_back({index_, false});
    const LegBatch batch = open_.at(ticket);
    open_.erase(ticket);
    if (fail) return Error(ErrorCode::kPeerGone, name_ + " is lost at collect");
    const Sums own = local_sums(model(), batch);
    for (std::size_t i = 0; i < own.values.size(); ++i) sums.data[i] += own.values[i];
    for (std::size_t i = 0; i < own.failed.size(); ++i) failed[i] |= own.failed[i];
    pairs += batch.pairs.size();
    return {};
  }
  bool idle() const { return open_.empty(); }

  bool refuse = false;
  bool fail = false;
  std::size_t most_open = ~std::size_t{0};
  std::size_t pairs = 0;
  std::vector<RowRange> ranges;  // of the last batch

 private:
  void check(const LegBatch& batch) {
    EXPECT_FALSE(batch.pairs.empty());
    EXPECT_EQ(batch.epoch, owners_.epoch());
    EXPECT_EQ(batch.gate_rows.activation, model().kernels[batch.layer].gate_class());
    EXPECT_EQ(batch.up_rows.activation, model().kernels[batch.layer].up_class());
    std::pair<int, int> before{-1, -1};
    for (const kernels::Pair& pair : batch.pairs) {
      EXPECT_EQ(owners_.owners(batch.layer)[pair.expert], index_) << "a pair of another leg";
      const std::pair<int, int> now{pair.expert, pair.row};
      EXPECT_LT(before, now) << "sorted by expert, then row, each once";
      before = now;
    }
    std::uint32_t next = 0;
    for (const RowRange& range : batch.ranges) {
      EXPECT_EQ(range.first, next);
      next += range.count;
    }
    EXPECT_EQ(next, batch.n_rows);
    ranges.assign(batch.ranges.begin(), batch.ranges.end());
  }

  std::size_t index_;
  const OwnerTable& owners_;
  Journal& journal_;
  std::string name_;
  std::map<Ticket, LegBatch> open_;
  Ticket last_ = 0;
};

// A dispatcher over fake legs.
struct Fakes {
  OwnerTable owners;
  Journal journal;
  std::vector<std::unique_ptr<FakeLeg>> legs;
  Serial serial;
  std::unique_ptr<Dispatcher> dispatcher;

  explicit Fakes(OwnerTable made) : owners(std::move(made)) {
    std::vector<Leg*> pointers;
    for (std::size_t i = 0; i < owners.n_legs(); ++i) {
      legs.push_back(std::make_unique<FakeLeg>(i, owners, journal));
      pointers.push_back(legs.back().get());
    }
    dispatcher = std::make_unique<Dispatcher>(owners, pointers, model().kernels, kTopK, serial, model().ops);
  }
  bool idle() const {
    return std::all_of(legs.begin(), legs.end(), [](const auto& leg) { return leg->idle(); });
  }
};

Sums host_alone(const Routed& routed) {
  static const OwnerTable all = table(1, std::vector<std::uint16_t>(model().n_layers() * kExperts, 0));
  Serial serial;
  HostLeg host(all, model().lookup(), model().kernels, serial, model().ops);
  Dispatcher dispatcher(all, {&host}, model().kernels, kTopK, serial, model().ops);
  Sums sums(routed.view.n_rows);
  TERRACE_CHECK(dispatcher.submit(routed.view).ok(), "the host alone");
  TERRACE_CHECK(dispatcher.collect(sums.view(), sums.failed).ok(), "the host alone");
  return sums;
}

TEST(Dispatcher, AnyOwnerTable_SameSumsAsTheHostAlone) {
  terrace::test::Rng rng(test::kSeed);
  for (int round = 0; round < 12; ++round) {
    Fakes fakes(random_table(1 + rng() % 5, rng));
    for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer) {
      const auto n_rows = static_cast<std::uint32_t>(1 + rng() % 12);
      const Routed routed(layer, n_rows, Priority::kDecode, rng);
      Sums sums(n_rows);
      std::fill(sums.values.begin(), sums.values.end(), 99);  // is overwritten
      std::size_t before = 0, after = 0;
      for (const auto& leg : fakes.legs) before += leg->pairs;
      ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
      ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
      for (const auto& leg : fakes.legs) after += leg->pairs;
      EXPECT_EQ(after - before, n_rows * kTopK) << "every pair once";
      EXPECT_EQ(sums, host_alone(routed)) << "round " << round << ", layer " << layer << ", seed " << test::kSeed;
    }
  }
}

TEST(Dispatcher, Workers_DoNotChangeSums) {
  terrace::test::Rng rng(test::kSeed);
  const OwnerTable owners = table(1, std::vector<std::uint16_t>(model().n_layers() * kExperts, 0));
  auto pool = Pool::create({.n_workers = 3});
  ASSERT_TRUE(pool.ok());
  HostLeg host(owners, model().lookup(), model().kernels, **pool, model().ops);
  Dispatcher dispatcher(owners, {&host}, model().kernels, kTopK, **pool, model().ops);
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer) {
    const Routed routed(layer, 9, Priority::kDecode, rng);
    Sums sums(9);
    ASSERT_TRUE(dispatcher.submit(routed.view).ok());
    ASSERT_TRUE(dispatcher.collect(sums.view(), sums.failed).ok());
    EXPECT_EQ(sums, host_alone(routed));
  }
}

TEST(Dispatcher, NodesAreSubmittedBeforeTheHost_AndTheHostIsCollectedFirst) {
  terrace::test::Rng rng(test::kSeed);
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i % 3);
  Fakes fakes(table(3, owners));
  const Routed routed(1, 20, Priority::kDecode, rng);
  Sums sums(20);
  ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  std::string order;
  for (const auto& entry : fakes.journal.entries)
    order += (entry.submit ? " submit " : " collect ") + std::to_string(entry.leg);
  EXPECT_EQ(order, " submit 1 submit 2 submit 0 collect 0 collect 1 collect 2");
}

TEST(Dispatcher, UseOfExperts_IsEachPairOfItsLayer) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(random_table(3, rng));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> expected;
  for (const std::uint32_t layer : {0u, 1u, 0u}) {
    const Routed routed(layer, 9, Priority::kDecode, rng);
    for (std::size_t i = 0; i < 9 * kTopK; ++i) ++expected[{layer, routed.view.experts[i]}];
    Sums sums(9);
    ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
    ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  }
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer)
    for (std::uint32_t expert = 0; expert < kExperts; ++expert)
      EXPECT_EQ(fakes.dispatcher->use().pairs(layer, expert), (expected[{layer, expert}])) << layer << " " << expert;
}

TEST(Dispatcher, LegWithoutPairs_IsNotAsked) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(table(3, std::vector<std::uint16_t>(model().n_layers() * kExperts, 2)));
  const Routed routed(0, 4, Priority::kDecode, rng);
  Sums sums(4);
  ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  for (const auto& entry : fakes.journal.entries) EXPECT_EQ(entry.leg, 2u);
  EXPECT_EQ(sums, host_alone(routed));
}

TEST(Dispatcher, PromptsAreCutIntoRanges_DecodeIsOne) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(table(1, std::vector<std::uint16_t>(model().n_layers() * kExperts, 0)));
  const Routed prompt(2, 2 * kPromptRangeRows + 5, Priority::kPrompt, rng);
  Sums sums(prompt.view.n_rows);
  ASSERT_TRUE(fakes.dispatcher->submit(prompt.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  ASSERT_EQ(fakes.legs[0]->ranges.size(), 3u);
  EXPECT_EQ(fakes.legs[0]->ranges[2].count, 5u);
  const Routed decode(2, 12, Priority::kDecode, rng);
  Sums decoded(12);
  ASSERT_TRUE(fakes.dispatcher->submit(decode.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(decoded.view(), decoded.failed).ok());
  EXPECT_EQ(fakes.legs[0]->ranges.size(), 1u);
}

TEST(Dispatcher, FailedSubmit_LeavesNoTicketOpen) {
  terrace::test::Rng rng(test::kSeed);
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i % 4);
  Fakes fakes(table(4, owners));
  const Routed routed(0, 16, Priority::kDecode, rng);
  for (std::size_t bad = 0; bad < 4; ++bad) {
    fakes.legs[bad]->refuse = true;
    const Status status = fakes.dispatcher->submit(routed.view);
    fakes.legs[bad]->refuse = false;
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().text(), fakes.owners.leg_name(bad) + " is lost at submit");
    EXPECT_TRUE(fakes.idle()) << bad;
  }
  Sums sums(16);
  ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  EXPECT_EQ(sums, host_alone(routed));
}

TEST(Dispatcher, FailedCollect_CollectsTheOthersAndGivesTheError) {
  terrace::test::Rng rng(test::kSeed);
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i % 4);
  Fakes fakes(table(4, owners));
  const Routed routed(1, 16, Priority::kDecode, rng);
  for (std::size_t bad = 0; bad < 4; ++bad) {
    fakes.legs[bad]->fail = true;
    Sums sums(16);
    ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
    const Status status = fakes.dispatcher->collect(sums.view(), sums.failed);
    fakes.legs[bad]->fail = false;
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().text(), fakes.owners.leg_name(bad) + " is lost at collect");
    EXPECT_TRUE(fakes.idle()) << bad;
  }
}

TEST(DispatcherDeathTest, SubmitOfMoreLayersThanMayBeOpen_Aborts) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(table(1, std::vector<std::uint16_t>(model().n_layers() * kExperts, 0)));
  const Routed routed(0, 1, Priority::kDecode, rng);
  for (std::size_t i = 0; i < kMostLayersOpen; ++i) ASSERT_TRUE(fakes.dispatcher->submit(routed.view).ok());
  EXPECT_DEATH((void)fakes.dispatcher->submit(routed.view), "before collect");
}

// ---- two layers under way: the halves of a step ---------------------------------------------------------------------

OwnerTable thirds_of_three() {
  std::vector<std::uint16_t> owners(model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i % 3);
  return table(3, owners);
}

TEST(DispatcherHalves, TheSecondHalfIsSubmittedBeforeTheFirstIsCollected_EachEndsInItsTurn) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(thirds_of_three());
  const Routed first(1, 20, Priority::kPrompt, rng), second(1, 13, Priority::kPrompt, rng),
      next(2, 20, Priority::kPrompt, rng);
  Sums sums(20), rest(13), after(20);
  ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
  ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  ASSERT_TRUE(fakes.dispatcher->submit(next.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(rest.view(), rest.failed).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(after.view(), after.failed).ok());
  EXPECT_EQ(sums, host_alone(first));
  EXPECT_EQ(rest, host_alone(second));
  EXPECT_EQ(after, host_alone(next));
  std::string order;
  for (const auto& entry : fakes.journal.entries) order += (entry.submit ? " s" : " c") + std::to_string(entry.leg);
  EXPECT_EQ(order, " s1 s2 s0 s1 s2 s0 c0 c1 c2 s1 s2 s0 c0 c1 c2 c0 c1 c2");
  EXPECT_TRUE(fakes.idle());
}

TEST(DispatcherHalves, LegWithRoomForOneBatch_GetsTheSecondWhenTheFirstHasEnded) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(thirds_of_three());
  fakes.legs[2]->most_open = 1;
  const Routed first(0, 9, Priority::kDecode, rng), second(0, 8, Priority::kDecode, rng);
  for (int round = 0; round < 3; ++round) {
    Sums sums(9), rest(8);
    ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
    ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
    ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
    ASSERT_TRUE(fakes.dispatcher->collect(rest.view(), rest.failed).ok());
    EXPECT_EQ(sums, host_alone(first));
    EXPECT_EQ(rest, host_alone(second));
  }
  // Of three that are under way two wait for it, each until the one before it has ended.
  const Routed third(0, 7, Priority::kDecode, rng);
  Sums sums(9), rest(8), last(7);
  ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
  ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
  fakes.legs[2]->most_open = 2;  // room for the third one, but the second comes first
  ASSERT_TRUE(fakes.dispatcher->submit(third.view).ok());
  fakes.legs[2]->most_open = 1;
  ASSERT_TRUE(fakes.dispatcher->collect(sums.view(), sums.failed).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(rest.view(), rest.failed).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(last.view(), last.failed).ok());
  EXPECT_EQ(sums, host_alone(first));
  EXPECT_EQ(rest, host_alone(second));
  EXPECT_EQ(last, host_alone(third));
  // Alone, a leg that is busy has failed.
  fakes.legs[2]->most_open = 0;
  EXPECT_EQ(fakes.dispatcher->submit(first.view).error().code(), ErrorCode::kBusy);
  EXPECT_TRUE(fakes.idle());
}

TEST(DispatcherHalves, ErrorOfEitherHalfOrAbandon_LeavesNoTicketOpen) {
  terrace::test::Rng rng(test::kSeed);
  Fakes fakes(thirds_of_three());
  const Routed first(0, 16, Priority::kPrompt, rng), second(0, 15, Priority::kPrompt, rng);
  Sums sums(16), rest(15);
  for (std::size_t bad = 0; bad < 3; ++bad) {
    ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
    fakes.legs[bad]->refuse = true;
    EXPECT_EQ(fakes.dispatcher->submit(second.view).error().text(), fakes.owners.leg_name(bad) + " is lost at submit");
    fakes.legs[bad]->refuse = false;
    EXPECT_TRUE(fakes.idle()) << "submit, " << bad;

    ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
    ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
    fakes.legs[bad]->fail = true;
    EXPECT_EQ(fakes.dispatcher->collect(sums.view(), sums.failed).error().text(),
              fakes.owners.leg_name(bad) + " is lost at collect");
    fakes.legs[bad]->fail = false;
    EXPECT_TRUE(fakes.idle()) << "collect, " << bad;
  }
  ASSERT_TRUE(fakes.dispatcher->submit(first.view).ok());
  ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
  EXPECT_TRUE(fakes.dispatcher->abandon().ok());
  EXPECT_TRUE(fakes.idle());
  EXPECT_TRUE(fakes.dispatcher->abandon().ok()) << "of nothing";
  ASSERT_TRUE(fakes.dispatcher->submit(second.view).ok());
  ASSERT_TRUE(fakes.dispatcher->collect(rest.view(), rest.failed).ok());
  EXPECT_EQ(rest, host_alone(second));
}

// ---- owner table ----------------------------------------------------------------------------------------------------

TEST(OwnerTable, TellsExpertsByLegAndLayer) {
  const OwnerTable owners(3, {"host", "box1:9000"}, 2, 4, {0, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_EQ(owners.epoch(), 3u);
  EXPECT_EQ(owners.n_legs(), 2u);
  EXPECT_EQ(owners.leg_name(1), "box1:9000");
  EXPECT_EQ(owners.experts(0, 0), (std::vector<std::uint16_t>{0, 3}));
  EXPECT_EQ(owners.experts(0, 1), (std::vector<std::uint16_t>{}));
  EXPECT_EQ(owners.experts(1, 1), (std::vector<std::uint16_t>{0, 1, 2, 3}));
  EXPECT_EQ(owners.n_slabs(0), 2u);
  EXPECT_EQ(owners.n_slabs(1), 6u);
  EXPECT_EQ(owners.owners(1).size(), 4u);
}

TEST(OwnerTableDeathTest, WrongSizeOrLeg_Aborts) {
  EXPECT_DEATH(OwnerTable(1, {"host"}, 2, 4, {0, 0}), "wrong size");
  EXPECT_DEATH(OwnerTable(1, {"host"}, 1, 2, {0, 1}), "does not exist");
}

}  // namespace dispatcher_test
}  // namespace terrace::legs
