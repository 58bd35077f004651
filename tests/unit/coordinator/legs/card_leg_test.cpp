// A card as a leg, over a card that is none.
#include "coordinator/legs/card_leg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/legs/dispatcher.h"
#include "tests/unit/coordinator/legs/test_model.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::legs {
namespace card_leg_test {

using test::kExperts;
using test::kTopK;
using test::kWidth;
using test::Routed;
using test::Sums;
using ::testing::HasSubstr;

const test::TestModel& model() {
  static const test::TestModel made;
  return made;
}

// The host has every expert whose number is below `first_on_card`.
OwnerTable table(std::size_t first_on_card) {
  std::vector<std::uint16_t> owners;
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer)
    for (std::size_t expert = 0; expert < kExperts; ++expert) owners.push_back(expert < first_on_card ? 0 : 1);
  return OwnerTable(test::kEpoch, {"host", card_leg_name(0)}, model().n_layers(), kExperts, std::move(owners));
}

std::uint64_t all_slabs() {
  std::uint64_t bytes = 0;
  for (const auto& layer : model().layers) bytes += kExperts * card_slab_bytes(layer.shape);
  return bytes;
}

// Host and card behind a dispatcher.
struct Legs {
  explicit Legs(std::size_t first_on_card) : owners(table(first_on_card)) {}
  Status load() {
    return leg->load(model().part_reader(), serial, [&](std::uint64_t d, std::uint64_t t) { done = d, total = t; });
  }
  Result<Sums> step(const Routed& routed) {
    Dispatcher dispatcher(owners, {&host, leg.get()}, model().kernels, kTopK, serial, model().ops);
    Sums sums(routed.view.n_rows);
    TERRACE_RETURN_IF_ERROR(dispatcher.submit(routed.view));
    TERRACE_RETURN_IF_ERROR(dispatcher.collect(sums.view(), sums.failed));
    return sums;
  }

  OwnerTable owners;
  Serial serial;
  terrace::test::FakeCard card{all_slabs()};
  HostLeg host{owners, model().lookup(), model().kernels, serial, model().ops};
  std::unique_ptr<CardLeg> leg = CardLeg::make(card, card.slab_memory(), owners, 1, model().kernels, 24).value();
  std::uint64_t done = 0, total = 0;
};

TEST(CardLegTest, AnySplitBetweenHostAndCard_SameSums) {
  terrace::test::Rng rng(test::kSeed);
  for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer)
    for (const std::uint32_t n_rows : {1u, 9u, 300u}) {
      const Routed routed(layer, n_rows, n_rows > 64 ? Priority::kPrompt : Priority::kDecode, rng);
      std::optional<Sums> expected;
      for (const std::size_t first_on_card : {kExperts, 0u, 3u}) {
        Legs legs(first_on_card);
        ASSERT_TRUE(legs.load().ok());
        auto got = legs.step(routed);
        ASSERT_TRUE(got.ok()) << got.error().text();
        if (!expected) expected = *got;
        EXPECT_EQ(got->values, expected->values)
            << "layer " << layer << ", rows " << n_rows << ", seed " << test::kSeed;
        EXPECT_EQ(got->failed, expected->failed);
        EXPECT_EQ(legs.card.pairs, legs.leg->counters().pairs);
        EXPECT_EQ(legs.card.pairs + legs.host.counters().pairs, std::uint64_t{n_rows} * kTopK);
      }
    }
}

TEST(CardLegTest, LoadingCopiesEachOwnedSlabOnce_AndTellsHowFarItIs) {
  Legs legs(5);
  ASSERT_TRUE(legs.load().ok());
  std::uint64_t bytes = 0, places = 0;
  for (const auto& layer : model().layers) {
    bytes += (kExperts - 5) * layer.shape.slab_bytes();
    places += (kExperts - 5) * card_slab_bytes(layer.shape);
  }
  EXPECT_EQ(legs.card.bytes_written, places);
  EXPECT_EQ(legs.total, places);
  EXPECT_EQ(legs.done, places);
  EXPECT_EQ(legs.leg->counters().weight_bytes_sent, bytes);
  EXPECT_EQ(legs.leg->experts(), (kExperts - 5) * model().n_layers());
  EXPECT_EQ(legs.leg->name(), "card0");
  EXPECT_STREQ(name(legs.leg->kind()), "card");
}

TEST(CardLegTest, ACardThatFails_IsLostWithItsReason) {
  terrace::test::Rng rng(test::kSeed);
  const Routed routed(0, 4, Priority::kDecode, rng);
  Legs legs(0);
  ASSERT_TRUE(legs.load().ok());
  legs.card.broken = true;
  const auto failed = legs.step(routed);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().text(), HasSubstr("card0"));
  EXPECT_THAT(failed.error().text(), HasSubstr("fell off the bus"));
  EXPECT_EQ(legs.leg->state(), LegState::kLost);
}

TEST(CardLegTest, LoadingFails_NamesTheCard) {
  Legs legs(0);
  legs.card.broken = true;
  const Status loaded = legs.load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().text(), HasSubstr("loading experts to card0"));
}

TEST(CardLegTest, AReadThatFails_EndsLoadingWithItsReason) {
  Legs legs(0);
  const SlabPartReader whole = model().part_reader();
  const Status loaded = legs.leg->load(
      [&](std::uint32_t layer, std::uint16_t expert, SlabPart part, std::uint64_t at,
          std::span<std::byte> to) -> Status {
        if (layer == 1 && expert == 2 && part == SlabPart::kDown && at > 0)
          return Error(ErrorCode::kCorrupt, "the file has become shorter");
        return whole(layer, expert, part, at, to);
      },
      legs.serial, [](std::uint64_t, std::uint64_t) {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(loaded.error().text(), HasSubstr("loading experts to card0"));
  EXPECT_THAT(loaded.error().text(), HasSubstr("has become shorter"));
}

// Slabs of 20 pieces and a bit, whose bytes nobody looks at.
struct ManyPieces {
  static constexpr std::uint64_t kBytes = 20 * kernels::CardWriter::kPieceBytes + 4096;
  ManyPieces() {
    kernels::ExpertKernels layer;
    layer.shape = shape;
    leg = CardLeg::make(card, card.slab_memory(), owners, 1, {layer}, 24).value();
  }
  const kernels::ExpertShape shape{TensorType::kF32, TensorType::kF32, TensorType::kF32, 1024,
                                   kBytes / (3 * 1024 * sizeof(float))};
  terrace::test::FakeCard card{kBytes};
  OwnerTable owners{test::kEpoch, {"host", card_leg_name(0)}, 1, 1, {1}};
  std::unique_ptr<CardLeg> leg;
};

TEST(CardLegTest, AReadThatFails_IsTheLastOne) {
  ManyPieces many;
  Serial serial;
  std::uint64_t reads = 0, pieces = 0;
  const Status loaded = many.leg->load(
      [&](std::uint32_t, std::uint16_t, SlabPart part, std::uint64_t, std::span<std::byte>) -> Status {
        ++reads;
        if (part == SlabPart::kUp) return Error(ErrorCode::kCorrupt, "the file has become shorter");
        return {};
      },
      serial, [&](std::uint64_t, std::uint64_t) { ++pieces; });
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(pieces, 6u) << "a third of 20";
  // 1,000 bytes a read of the fake writer: all of the first part, and one more.
  const std::uint64_t gate_bytes = ManyPieces::kBytes / 3;
  EXPECT_LE(reads, gate_bytes / 1000 + pieces + 2);
}

// Sixteen CPUs and more: no more memory is pinned than a plan counts, and every byte is there all the same.
TEST(CardLegTest, ManyWorkers_AsManyWritersAsAPlanCounts) {
  class ManyWorkers final : public Parallel {
   public:
    std::size_t n_workers() const override { return 40; }
    void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
      run_in_order(n_items, fn);
    }
    void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
      for (std::size_t item = 0; item < n_items; ++item) fn(item, item % n_workers());
    }
  } workers;
  ManyPieces many;
  const auto reads = [](std::uint32_t, std::uint16_t, SlabPart, std::uint64_t, std::span<std::byte>) -> Status {
    return {};
  };
  ASSERT_TRUE(many.leg->load(reads, workers, [](std::uint64_t, std::uint64_t) {}).ok());
  EXPECT_EQ(many.card.writers, kMostCardWriters);
  EXPECT_EQ(kCardLoadingBytes, kMostCardWriters * kernels::CardWriter::kPinnedBytes);
  EXPECT_EQ(many.card.bytes_written, card_slab_bytes(many.shape));
  Legs few(0);
  ASSERT_TRUE(few.leg->load(model().part_reader(), workers, [](std::uint64_t, std::uint64_t) {}).ok());
  EXPECT_EQ(few.card.writers, 1u) << "there is but one piece";
}

TEST(CardLegTest, ASecondBatchBeforeCollect_IsBusy) {
  terrace::test::Rng rng(test::kSeed);
  Legs legs(0);
  ASSERT_TRUE(legs.load().ok());
  const test::TestBatch batch(model(), 0, 3, 3, kExperts, Priority::kDecode, rng);
  const auto first = legs.leg->submit(batch.batch);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(legs.leg->submit(batch.batch).error().code(), ErrorCode::kBusy);
  Sums sums(3);
  EXPECT_TRUE(legs.leg->collect(*first, sums.view(), sums.failed).ok());
  EXPECT_EQ(sums.values, local_sums(model(), batch.batch).values);
  EXPECT_EQ(legs.leg->state(), LegState::kOk);
}

TEST(CardLegTest, HoldsEveryExpert_SlabsForATrunkThere_AndItsStepsCount) {
  Legs legs(0);
  Dispatcher dispatcher(legs.owners, {&legs.host, legs.leg.get()}, model().kernels, kTopK, legs.serial, model().ops);
  dispatcher.begin_step();
  const std::span<const kernels::SlabView> slabs = dispatcher.slabs_on_card();
  ASSERT_EQ(slabs.size(), std::size_t{model().n_layers()} * kExperts);
  for (const kernels::SlabView& slab : slabs) EXPECT_TRUE(slab.gate && slab.up && slab.down);
  constexpr std::uint32_t kRows = 2;
  const std::vector<std::uint16_t> experts(std::size_t{model().n_layers()} * kRows * kTopK, 1);
  dispatcher.count_on_card(experts.data(), kRows, 7'000);
  const LegCounters counted = legs.leg->counters();
  EXPECT_EQ(counted.compute_us, 7u);
  EXPECT_EQ(counted.batches, model().n_layers());
  EXPECT_EQ(counted.rows, model().n_layers() * kRows);
  EXPECT_EQ(counted.pairs, model().n_layers() * kRows * kTopK);
  EXPECT_EQ(dispatcher.use().pairs(0, 1), kRows * kTopK);
}

TEST(CardLegTest, HostHoldsOneExpert_NoWholeStepThere_ButAPartOfIt) {
  Legs legs(1);
  Dispatcher dispatcher(legs.owners, {&legs.host, legs.leg.get()}, model().kernels, kTopK, legs.serial, model().ops);
  dispatcher.begin_step();
  EXPECT_TRUE(dispatcher.slabs_on_card().empty());
  const std::span<const kernels::SlabView> part = dispatcher.part_on_card();
  ASSERT_EQ(part.size(), std::size_t{model().n_layers()} * kExperts);
  EXPECT_FALSE(dispatcher.launches_on_card());
  EXPECT_EQ(part[0].gate, nullptr);
  EXPECT_NE(part[1].gate, nullptr);
}

// What the trunk computes on the card and what the dispatcher gives without it are the sums of all.
TEST(CardLegTest, RowsWithoutTheCardsPairs_GiveTheOthersSums_AndCountTheCards) {
  terrace::test::Rng rng(test::kSeed);
  const Routed routed(0, 9, Priority::kDecode, rng);
  Legs legs(3), all_there(0);
  ASSERT_TRUE(legs.load().ok());
  ASSERT_TRUE(all_there.load().ok());
  const auto whole = all_there.step(routed);
  ASSERT_TRUE(whole.ok()) << whole.error().text();
  Dispatcher dispatcher(legs.owners, {&legs.host, legs.leg.get()}, model().kernels, kTopK, legs.serial, model().ops);
  const auto sums_of = [&](bool without_card) {
    RoutedRows rows = routed.view;
    rows.without_card = without_card;
    Sums sums(rows.n_rows);
    EXPECT_TRUE(dispatcher.submit(rows).ok());
    EXPECT_TRUE(dispatcher.collect(sums.view(), sums.failed).ok());
    return sums.values;
  };
  const auto with_card = sums_of(false);
  EXPECT_EQ(with_card, whole->values);
  const LegCounters once = legs.leg->counters();
  ASSERT_GT(once.pairs, 0u) << "seed " << test::kSeed;
  const std::uint64_t computed = legs.card.pairs;
  const auto without_card = sums_of(true);
  EXPECT_NE(without_card, with_card);
  EXPECT_EQ(legs.card.pairs, computed) << "nothing was asked of the leg";
  const LegCounters twice = legs.leg->counters();
  EXPECT_EQ(twice.pairs, 2 * once.pairs);
  EXPECT_EQ(twice.rows, 2 * once.rows);
  EXPECT_EQ(twice.batches, 2 * once.batches);
}

// Host and two cards, the first the trunk's: expert e is leg e % 3's.
struct TwoCards {
  TwoCards() {
    std::vector<std::uint16_t> places;
    for (std::uint32_t layer = 0; layer < model().n_layers(); ++layer)
      for (std::size_t expert = 0; expert < kExperts; ++expert)
        places.push_back(static_cast<std::uint16_t>(expert % 3));
    owners.emplace(test::kEpoch, std::vector<std::string>{"host", card_leg_name(0), card_leg_name(1)},
                   model().n_layers(), kExperts, std::move(places));
    host.emplace(*owners, model().lookup(), model().kernels, serial, model().ops);
    for (std::size_t i = 0; i < 2; ++i) {
      legs[i] = CardLeg::make(cards[i], cards[i].slab_memory(), *owners, i + 1, model().kernels, 24,
                              i == 0 ? CardLeg::Place::kWithTrunk : CardLeg::Place::kApart)
                    .value();
      EXPECT_TRUE(legs[i]->load(model().part_reader(), serial, [](std::uint64_t, std::uint64_t) {}).ok());
      pairs_when_loaded[i] = std::exchange(cards[i].pairs, 0);
    }
    dispatcher.emplace(*owners, std::vector<Leg*>{&*host, legs[0].get(), legs[1].get()}, model().kernels, kTopK, serial,
                       model().ops);
    dispatcher->begin_step();
  }
  Result<Sums> sums_of(RoutedRows rows) {
    Sums sums(rows.n_rows);
    TERRACE_RETURN_IF_ERROR(dispatcher->submit(rows));
    TERRACE_RETURN_IF_ERROR(dispatcher->collect(sums.view(), sums.failed));
    return sums;
  }

  Serial serial;
  std::uint64_t pairs_when_loaded[2] = {};
  terrace::test::FakeCard cards[2] = {terrace::test::FakeCard(all_slabs()), terrace::test::FakeCard(all_slabs(), 1)};
  std::optional<OwnerTable> owners;
  std::optional<HostLeg> host;
  std::unique_ptr<CardLeg> legs[2];
  std::optional<Dispatcher> dispatcher;
};

TEST(CardLegTest, TwoCards_EachComputesItsPairs_SumsOfTheHostAlone) {
  terrace::test::Rng rng(test::kSeed);
  TwoCards two;
  for (const std::uint32_t n_rows : {1u, 9u, 300u}) {
    const Routed routed(1, n_rows, n_rows > 64 ? Priority::kPrompt : Priority::kDecode, rng);
    Legs alone(kExperts);
    const auto expected = alone.step(routed);
    ASSERT_TRUE(expected.ok());
    const auto got = two.sums_of(routed.view);
    ASSERT_TRUE(got.ok()) << got.error().text();
    EXPECT_EQ(got->values, expected->values) << "rows " << n_rows << ", seed " << test::kSeed;
    EXPECT_EQ(got->failed, expected->failed);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(two.cards[i].pairs, 0u);
    EXPECT_EQ(two.cards[i].pairs, two.legs[i]->counters().pairs);
  }
  EXPECT_EQ(two.cards[0].pairs + two.cards[1].pairs + two.host->counters().pairs, 310 * kTopK);
  EXPECT_EQ(two.legs[1]->name(), "card1");
}

// The trunk's card goes through a step by itself; the other one is asked as the CPU is, while the first computes.
TEST(CardLegTest, OnlyTheTrunksCard_GivesItsSlabsToTheTrunk) {
  terrace::test::Rng rng(test::kSeed);
  TwoCards two;
  const std::span<const kernels::SlabView> part = two.dispatcher->part_on_card();
  ASSERT_EQ(part.size(), std::size_t{model().n_layers()} * kExperts);
  for (std::size_t expert = 0; expert < kExperts; ++expert)
    EXPECT_EQ(part[expert].gate != nullptr, expert % 3 == 1) << "expert " << expert;
  EXPECT_TRUE(two.dispatcher->slabs_on_card().empty()) << "another card and the host own some";
  EXPECT_FALSE(two.dispatcher->launches_on_card()) << "not on the card that the trunk waits in";
  const Routed routed(0, 9, Priority::kDecode, rng);
  RoutedRows rows = routed.view;
  rows.without_card = true;
  ASSERT_TRUE(two.sums_of(rows).ok());
  EXPECT_EQ(two.cards[0].pairs, 0u) << "the trunk computes them";
  EXPECT_GT(two.cards[1].pairs, 0u);
}

// What a driver does at a kernel's first launch may wait for the trunk's card, which waits for this leg in its steps.
TEST(CardLegTest, ACardApart_HasComputedEachShapeWithFewRowsAndManyWhenItIsLoaded) {
  TwoCards two;
  std::vector<kernels::ExpertShape> shapes;
  for (const auto& layer : model().kernels)
    if (std::ranges::count(shapes, layer.shape) == 0) shapes.push_back(layer.shape);
  EXPECT_EQ(two.pairs_when_loaded[0], 0u) << "launches nothing while the trunk waits there";
  EXPECT_EQ(two.pairs_when_loaded[1], shapes.size() * (1 + 2 + 4 + 8 + 16)) << "kernels are chosen by an expert's rows";
  EXPECT_EQ(two.legs[1]->counters().pairs, 0u) << "nobody asked for them";
}

TEST(CardLegTest, OneOfTwoCardsFails_ItAloneIsLost) {
  terrace::test::Rng rng(test::kSeed);
  TwoCards two;
  two.cards[1].broken = true;
  const auto failed = two.sums_of(Routed(0, 9, Priority::kDecode, rng).view);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().text(), HasSubstr("card1"));
  EXPECT_EQ(two.legs[0]->state(), LegState::kOk);
  EXPECT_EQ(two.legs[1]->state(), LegState::kLost);
}

// A later epoch gives an expert of the card to the host: the card still has it in memory, and must not add it.
TEST(CardLegTest, AnEpochInWhichTheCardOwnsLessThanItHolds_NothingForATrunkThere) {
  Legs legs(1);
  const OwnerTable later = table(2);
  Dispatcher dispatcher(later, {&legs.host, legs.leg.get()}, model().kernels, kTopK, legs.serial, model().ops);
  dispatcher.begin_step();
  EXPECT_TRUE(dispatcher.part_on_card().empty());
  EXPECT_TRUE(dispatcher.launches_on_card()) << "as any leg";
  EXPECT_TRUE(dispatcher.slabs_on_card().empty());
}

}  // namespace card_leg_test
}  // namespace terrace::legs
