// What the dispatcher does when a leg is late, lost or wrong: the same sums, whoever computes them.
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/out_leg.h"
#include "tests/unit/coordinator/legs/failure_parts.h"

namespace terrace::legs {
namespace dispatcher_failure_test {

using namespace std::chrono_literals;
using test::kExperts;
using test::kTopK;
using test::Routed;
using test::ScriptedLeg;
using test::Sums;

const test::TestModel& failing_model() {
  static const test::TestModel made;
  return made;
}

OwnerTable thirds(std::uint64_t epoch = test::kEpoch) {
  std::vector<std::uint16_t> owners(failing_model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint16_t>(i % 3);
  return OwnerTable(epoch, {"host", "box1:9000", "box2:9000"}, failing_model().n_layers(), kExperts, owners);
}

// A host and two nodes, each with a third of the experts.
class DispatcherFailure : public testing::Test {
 protected:
  std::shared_ptr<ScriptedLeg> node(const std::string& name) {
    return std::make_shared<ScriptedLeg>(name, failing_model(), clock_);
  }
  Dispatcher& dispatcher(bool with_backstop = true) {
    if (!made_)
      made_ =
          std::make_unique<Dispatcher>(DispatcherParts{.epoch = make_epoch(thirds(), {host_, first_, second_}),
                                                       .kernels = failing_model().kernels,
                                                       .top_k = kTopK,
                                                       .parallel = serial_,
                                                       .ops = failing_model().ops,
                                                       .backstop = with_backstop ? backstop_.backstop.get() : nullptr,
                                                       .board = &board_,
                                                       .clock = &clock_});
    return *made_;
  }
  Routed rows(std::uint32_t layer, std::uint32_t n_rows) {
    return Routed(layer, n_rows, n_rows < 100 ? Priority::kDecode : Priority::kPrompt, rng_);
  }
  Sums right(const Routed& routed) {
    const OwnerTable all(1, {"host"}, failing_model().n_layers(), kExperts,
                         std::vector<std::uint16_t>(failing_model().n_layers() * kExperts, 0));
    HostLeg host(all, failing_model().lookup(), failing_model().kernels, serial_, failing_model().ops);
    Dispatcher alone(all, {&host}, failing_model().kernels, kTopK, serial_, failing_model().ops);
    Sums sums(routed.view.n_rows);
    TERRACE_CHECK(alone.submit(routed.view).ok() && alone.collect(sums.view(), sums.failed).ok(), "the host alone");
    return sums;
  }
  Status run(const Routed& routed, Sums& sums) {
    dispatcher().begin_step();
    TERRACE_RETURN_IF_ERROR(dispatcher().submit(routed.view));
    return dispatcher().collect(sums.view(), sums.failed);
  }
  void expect_same_sums(const Routed& routed) {
    Sums sums(routed.view.n_rows);
    const Status status = run(routed, sums);
    ASSERT_TRUE(status.ok()) << status.error().text();
    EXPECT_EQ(sums, right(routed)) << "seed " << test::kSeed;
  }
  void expect_same_halves(const Routed& older, const Routed& younger) {
    Sums sums(older.view.n_rows), rest(younger.view.n_rows);
    dispatcher().begin_step();
    ASSERT_TRUE(dispatcher().submit(older.view).ok());
    ASSERT_TRUE(dispatcher().submit(younger.view).ok());
    const Status first = dispatcher().collect(sums.view(), sums.failed);
    ASSERT_TRUE(first.ok()) << first.error().text();
    const Status second = dispatcher().collect(rest.view(), rest.failed);
    ASSERT_TRUE(second.ok()) << second.error().text();
    EXPECT_EQ(sums, right(older)) << "seed " << test::kSeed;
    EXPECT_EQ(rest, right(younger)) << "seed " << test::kSeed;
  }
  // Batches to the first node that are late and back before twice their limit, as many as are hedged and some.
  void spend_all_tokens() {
    first_->soft = 1ms;
    first_->answer_after = 1500us;
    for (int i = 0; i < 15; ++i) {
      expect_same_sums(rows(0, 1));
      clock_.wait({}, clock_.now() + 2ms);
    }
  }
  LegCounters counted(const std::string& name) { return board_.find(name)->report().counters; }
  std::uint64_t all_pairs() {
    std::uint64_t pairs = 0;
    for (const LegReport& leg : board_.report()) pairs += leg.counters.pairs;
    return pairs;
  }

  test::ManualClock clock_;
  Serial serial_;
  terrace::test::Rng rng_{test::kSeed};
  LegBoard board_;
  test::TestBackstop backstop_{failing_model(), serial_};
  std::shared_ptr<HostLeg> host_ = std::make_shared<HostLeg>(thirds(), failing_model().lookup(),
                                                             failing_model().kernels, serial_, failing_model().ops);
  std::shared_ptr<ScriptedLeg> first_ = node("box1:9000"), second_ = node("box2:9000");
  std::unique_ptr<Dispatcher> made_;
};

// The order of events: batches to all nodes, the host's own work in slices, answers.
TEST_F(DispatcherFailure, NobodyFails_EveryNodeHasItsBatchAndTheHostHasComputedBeforeAnAnswerIsTaken) {
  std::string events;
  first_->events = second_->events = &events;
  host_->set_meanwhile([&] {
    events += 'h';
    dispatcher().progress();  // answers may come: they wait
  });
  first_->answer_after = second_->answer_after = 1us;
  expect_same_sums(rows(1, 600));
  EXPECT_TRUE(events.starts_with("ssh")) << events;
  EXPECT_GT(events.find('t'), events.rfind('h')) << events;
  EXPECT_EQ(std::ranges::count(events, 's'), 2) << events;
}

TEST_F(DispatcherFailure, NobodyFails_TheBackstopReadsNothing) {
  const std::size_t before = backstop_.reader->reads;
  for (std::uint32_t layer = 0; layer < 3; ++layer) expect_same_sums(rows(layer, 4 + layer));
  expect_same_sums(rows(1, 600));
  EXPECT_EQ(backstop_.reader->reads, before);
  EXPECT_EQ(counted("box1:9000").hedged_pairs, 0u);
  EXPECT_EQ(first_->n_open(), 0u);
}

TEST_F(DispatcherFailure, LostAtSubmit_SameSumsInThisLayerAndAllLater) {
  expect_same_sums(rows(0, 3));
  first_->lose_at_submit = true;
  for (const std::uint32_t n_rows : {3u, 600u, 1u, 8u}) expect_same_sums(rows(1, n_rows));
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kLost);
  EXPECT_EQ(board_.find("box1:9000")->report().reason, "box1:9000: the node is lost");
  EXPECT_EQ(board_.find("box2:9000")->state(), LegState::kOk);
  EXPECT_GT(counted("box1:9000").hedged_pairs, 0u);
  EXPECT_EQ(all_pairs(), (3 + 3 + 600 + 1 + 8) * kTopK) << "every pair is somebody's, once";
}

TEST_F(DispatcherFailure, LostWithSomeRangesAnswered_SameSums) {
  for (const std::size_t answered : {0u, 1u, 2u}) {
    first_->range_after.clear();
    for (std::size_t range = 0; range < 3; ++range)
      first_->range_after[range] = range == answered ? 100us : ScriptedLeg::kNever;
    first_->lost_after = 1ms;
    expect_same_sums(rows(2, 700));
    made_.reset();
    first_ = node("box1:9000");
  }
}

TEST_F(DispatcherFailure, BothNodesLost_SameSums) {
  first_->lost_after = 200us;
  first_->answer_after = ScriptedLeg::kNever;
  second_->lose_at_submit = true;
  for (const std::uint32_t n_rows : {5u, 600u, 1u}) expect_same_sums(rows(0, n_rows));
}

// ---- with both halves of a step under way ---------------------------------------------------------------------------

TEST_F(DispatcherFailure, LostWithBothHalvesUnderWay_SameSums) {
  for (const auto lost_after : {0us, 50us, 300us}) {
    first_->lost_after = lost_after;
    first_->answer_after = 1ms;
    expect_same_halves(rows(0, 300), rows(0, 299));
    expect_same_halves(rows(1, 300), rows(1, 299));
    EXPECT_EQ(first_->state(), LegState::kLost);
    EXPECT_EQ(first_->n_open(), 0u);
    made_.reset();
    first_ = node("box1:9000");
  }
}

TEST_F(DispatcherFailure, OlderHalfWantsTheBackstopThatReadsForTheYounger_SameSums) {
  const Routed older = rows(0, 5), younger = rows(0, 4);
  Sums sums(5), rest(4);
  second_->answer_after = 50ms;  // past its soft limit, while the younger half has lost the other node
  dispatcher().begin_step();
  ASSERT_TRUE(dispatcher().submit(older.view).ok());
  first_->lose_at_submit = true;
  ASSERT_TRUE(dispatcher().submit(younger.view).ok());
  ASSERT_TRUE(dispatcher().collect(sums.view(), sums.failed).ok());
  EXPECT_EQ(sums, right(older));
  ASSERT_TRUE(dispatcher().collect(rest.view(), rest.failed).ok());
  EXPECT_EQ(rest, right(younger));
  EXPECT_GT(counted("box1:9000").hedged_pairs, 0u);
}

TEST_F(DispatcherFailure, FileUnreadableWithBothHalvesUnderWay_EndsBoth) {
  first_->lose_at_submit = true;
  backstop_.reader->broken = true;
  const Routed older = rows(0, 5), younger = rows(0, 4);
  Sums sums(5);
  dispatcher().begin_step();
  ASSERT_TRUE(dispatcher().submit(older.view).ok());
  ASSERT_TRUE(dispatcher().submit(younger.view).ok());
  EXPECT_EQ(dispatcher().collect(sums.view(), sums.failed).error().code(), ErrorCode::kIo);
  EXPECT_EQ(second_->n_open(), 0u);
  backstop_.reader->broken = false;
  expect_same_halves(rows(1, 5), rows(1, 4));
}

TEST_F(DispatcherFailure, WrongNode_IsToldApartFromALostOne) {
  first_->out_as = LegState::kWrong;
  first_->lost_after = 100us;
  first_->answer_after = ScriptedLeg::kNever;
  expect_same_sums(rows(1, 6));
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kWrong);
}

TEST_F(DispatcherFailure, PastTheSoftLimit_HedgedThenSkippedUntilItAnswers) {
  first_->answer_after = 50ms;
  expect_same_sums(rows(0, 4));
  EXPECT_EQ(first_->state(), LegState::kSuspect);
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kSuspect);
  EXPECT_EQ(counted("box1:9000").hedges, 1u);
  EXPECT_EQ(counted("box1:9000").false_hedges, 0u);
  const std::size_t asked = first_->epochs.size();
  expect_same_sums(rows(1, 4));
  EXPECT_EQ(first_->epochs.size(), asked) << "suspect: it gets nothing";
  EXPECT_EQ(counted("box1:9000").skipped, 1u);
  EXPECT_EQ(counted("box1:9000").hedges, 1u) << "what is not sent is no hedge";
  pollfd none{};
  clock_.wait({&none, 0}, clock_.now() + 60ms);  // its answer comes
  first_->answer_after = 100us;
  expect_same_sums(rows(2, 4));
  EXPECT_EQ(first_->epochs.size(), asked + 1);
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kOk);
  EXPECT_EQ(first_->n_open(), 0u);
}

TEST_F(DispatcherFailure, OneRangeLate_ItAloneIsComputedElsewhere) {
  first_->range_after[1] = ScriptedLeg::kNever;
  expect_same_sums(rows(1, 700));
  const LegCounters c = counted("box1:9000");
  EXPECT_GT(c.hedged_pairs, 0u);
  EXPECT_LT(c.hedged_pairs, c.pairs / 2) << "256 of 700 rows";
}

// The leg's answer comes while the backstop computes: it is added, the backstop's sum is not.
TEST_F(DispatcherFailure, AnswerBesideTheHedge_IsAddedOnceAndCountedAsFalse) {
  first_->soft = 1ms;
  first_->answer_after = first_->soft + 3us;  // between the first look at the limit and the backstop's end
  bool raced = false;
  for (int i = 0; i < 40 && !raced; ++i, first_->answer_after += 2us) {
    expect_same_sums(rows(0, 8));
    raced = counted("box1:9000").false_hedges > 0;
    first_->progress();
  }
  EXPECT_TRUE(raced);
}

// One of the ranges that the backstop computes is answered meanwhile: the others are closed by the backstop's rows
// alone.
TEST_F(DispatcherFailure, OneRangeAnsweredBesideTheHedge_NoRowIsAddedTwice) {
  first_->soft = 1ms;
  first_->answer_after = ScriptedLeg::kNever;
  first_->range_after[1] = first_->soft + 500us;
  backstop_.reader->on_read = [this] { clock_.wait({}, clock_.now() + 1ms); };  // three experts: 3 ms
  expect_same_sums(rows(0, 700));
  EXPECT_EQ(counted("box1:9000").false_hedges, 1u);
  EXPECT_GT(counted("box1:9000").hedged_pairs, 0u);
}

TEST_F(DispatcherFailure, HedgesAreOneOfAHundredBatches) {
  first_->soft = 1ms;
  for (int i = 0; i < 600; ++i) {
    first_->answer_after = 1500us;  // always late, and back before the next layer
    expect_same_sums(rows(static_cast<std::uint32_t>(i) % 3, 1));
    pollfd none{};
    clock_.wait({&none, 0}, clock_.now() + 2ms);
  }
  const std::uint64_t batches = first_->epochs.size() + second_->epochs.size();
  EXPECT_LE(counted("box1:9000").hedges, static_cast<std::uint64_t>(kMostHedgeTokens) + batches / 100 + 1);
  EXPECT_GE(counted("box1:9000").hedges, static_cast<std::uint64_t>(kMostHedgeTokens));
}

// Tokens are earned by further batches alone: without one, a batch would wait for the node until that is lost.
TEST_F(DispatcherFailure, MuteNodeAndNoTokenLeft_HedgedAtTwiceTheSoftLimit) {
  spend_all_tokens();
  first_->answer_after = ScriptedLeg::kNever;
  first_->lost_after = 2s;
  const auto before = clock_.now();
  expect_same_sums(rows(0, 4));
  EXPECT_LT(clock_.now() - before, 3 * first_->soft);
  EXPECT_EQ(first_->state(), LegState::kSuspect);
}

TEST_F(DispatcherFailure, MuteNodeWithSeveralLayersUnderWay_CostsOneToken) {
  constexpr std::uint64_t kUnderWay = 3;
  first_->soft = 1ms;
  first_->answer_after = 50ms;
  const Routed routed = rows(0, 2);
  dispatcher().begin_step();
  for (std::uint64_t i = 0; i < kUnderWay; ++i) ASSERT_TRUE(dispatcher().submit(routed.view).ok());
  for (std::uint64_t i = 0; i < kUnderWay; ++i) {
    Sums sums(2);
    ASSERT_TRUE(dispatcher().collect(sums.view(), sums.failed).ok());
    EXPECT_EQ(sums, right(routed)) << "seed " << test::kSeed;
  }
  EXPECT_EQ(counted("box1:9000").hedges, kUnderWay);
  clock_.wait({}, clock_.now() + 60ms);
  first_->progress();
  EXPECT_EQ(first_->state(), LegState::kOk) << "it has answered";
  spend_all_tokens();
  EXPECT_EQ(counted("box1:9000").hedges, kUnderWay + static_cast<std::uint64_t>(kMostHedgeTokens) - 1);
}

TEST_F(DispatcherFailure, RefusedBatch_IsComputedHereAndTheLegStays) {
  first_->refuse_batch = true;
  expect_same_sums(rows(1, 5));
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kOk);
  first_->refuse_batch = false;
  const std::size_t asked = first_->epochs.size();
  expect_same_sums(rows(1, 5));
  EXPECT_EQ(first_->epochs.size(), asked + 1);
}

TEST_F(DispatcherFailure, FileUnreadable_OneErrorNamesLegAndFileAndOnlyThisStepFails) {
  first_->lost_after = 100us;
  first_->answer_after = ScriptedLeg::kNever;
  backstop_.reader->broken = true;
  const Routed routed = rows(1, 6);
  Sums sums(6);
  const Status failed = run(routed, sums);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().text().find("box1:9000: the node is lost"), std::string::npos) << failed.error().text();
  EXPECT_NE(failed.error().text().find("model.gguf: tensor"), std::string::npos) << failed.error().text();
  EXPECT_EQ(second_->n_open(), 0u) << "nothing is left open at the others";
  backstop_.reader->broken = false;
  expect_same_sums(routed);
}

TEST_F(DispatcherFailure, HedgeThatCannotRead_WaitsForTheLeg) {
  first_->answer_after = 80ms;
  backstop_.reader->broken = true;
  expect_same_sums(rows(0, 4));
  EXPECT_EQ(counted("box1:9000").hedged_pairs, 0u);
}

TEST_F(DispatcherFailure, WithoutABackstop_TheLegsErrorEndsTheStep) {
  first_->lost_after = 100us;
  first_->answer_after = ScriptedLeg::kNever;
  dispatcher(false);
  const Routed routed = rows(1, 6);
  Sums sums(6);
  const Status failed = run(routed, sums);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().text(), "box1:9000: the node is lost");
}

// ---- epochs -----------------------------------------------------------------------------------------------------

TEST_F(DispatcherFailure, EpochIsAdoptedAtTheNextStep_AndTheOldOneHandedBack) {
  const Routed routed = rows(1, 6);
  expect_same_sums(routed);
  std::vector<std::uint16_t> owners(failing_model().n_layers() * kExperts);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = i % 3 == 0 ? 0 : 1;
  auto next = std::make_shared<Epoch>(Epoch{
      OwnerTable(9, {"host", "box2:9000"}, failing_model().n_layers(), kExperts, owners), {host_, second_}, {9, 7}});
  Sums sums(6);
  dispatcher().begin_step();
  ASSERT_TRUE(dispatcher().submit(routed.view).ok());
  dispatcher().publish(next);
  EXPECT_EQ(dispatcher().latest()->owners.epoch(), 9u);
  ASSERT_TRUE(dispatcher().collect(sums.view(), sums.failed).ok());
  EXPECT_TRUE(dispatcher().take_retired().empty()) << "the step keeps its epoch to its end";
  EXPECT_FALSE(first_->retired);

  expect_same_sums(routed);
  EXPECT_TRUE(first_->retired);
  EXPECT_EQ(second_->epochs.back(), 7u) << "a leg's batches name what it has acknowledged";
  const auto retired = dispatcher().take_retired();
  ASSERT_EQ(retired.size(), 1u);
  EXPECT_EQ(retired[0]->owners.epoch(), test::kEpoch);
  EXPECT_EQ(board_.find("box1:9000")->report().experts, 0u);
  EXPECT_GT(counted("box1:9000").pairs, 0u) << "what it counted stays";
}

TEST_F(DispatcherFailure, EpochOverwrittenBeforeAStep_IsHandedBackUnused) {
  dispatcher().publish(make_epoch(thirds(8), {host_, first_, second_}));
  dispatcher().publish(make_epoch(thirds(9), {host_, first_, second_}));
  expect_same_sums(rows(0, 2));
  EXPECT_EQ(first_->epochs.back(), 9u);
  EXPECT_EQ(dispatcher().take_retired().size(), 2u);
}

TEST_F(DispatcherFailure, NewSessionOfANode_GoesOnWithItsCounters) {
  const Routed routed = rows(1, 6);
  expect_same_sums(routed);
  const std::uint64_t before = counted("box1:9000").pairs;
  first_->lost_after = 0us;
  first_->answer_after = ScriptedLeg::kNever;
  expect_same_sums(routed);
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kLost);
  const std::uint64_t changes = board_.changes();
  first_ = node("box1:9000");
  dispatcher().publish(make_epoch(thirds(8), {host_, first_, second_}));
  expect_same_sums(routed);
  EXPECT_EQ(counted("box1:9000").pairs, 3 * before);
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kOk);
  EXPECT_GT(board_.changes(), changes);
}

// Found by SupervisedSimulation: the board called it lost again, and it would have been taken back.
TEST_F(DispatcherFailure, NodeFoundWrongBeforeAnEpochThatHasItLost_StaysWrong) {
  const Routed routed = rows(1, 6);
  expect_same_sums(routed);
  const auto lost = make_out_leg("box1:9000", LegKind::kNode, LegState::kLost, "box1:9000: the node is lost");
  const OwnerTable all(8, {"host", "box1:9000", "box2:9000"}, failing_model().n_layers(), kExperts,
                       std::vector<std::uint16_t>(failing_model().n_layers() * kExperts, 0));
  const auto host =
      std::make_shared<HostLeg>(all, failing_model().lookup(), failing_model().kernels, serial_, failing_model().ops);
  dispatcher().publish(make_epoch(all, {host, lost, second_}));
  board_.find("box1:9000")->set_state(LegState::kWrong, "box1:9000: other bits");
  expect_same_sums(routed);
  EXPECT_EQ(board_.find("box1:9000")->state(), LegState::kWrong);
  EXPECT_EQ(board_.find("box1:9000")->report().reason, "box1:9000: other bits");
}

}  // namespace dispatcher_failure_test
}  // namespace terrace::legs
