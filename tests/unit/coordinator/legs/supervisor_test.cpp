// The supervisor with legs and nodes that do what a test says.
#include "coordinator/legs/supervisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/unit/coordinator/legs/supervisor_testing.h"

namespace terrace::legs {
namespace supervisor_test {

using namespace supervisor_testing;

// A clock that every look at it, and every wait, moves on: no two looks see one time, and pauses of minutes take none.
class HastyRuntime : public Runtime {
 public:
  explicit HastyRuntime(milliseconds a_look) : a_look_(a_look) {}
  TimePoint now() override {
    const std::lock_guard lock(mutex_);
    return now_ += a_look_;
  }
  Result<std::thread> start(const std::string& name, std::function<void()> body) override {
    return system_runtime().start(name, std::move(body));
  }
  void join(std::thread& thread) override { system_runtime().join(thread); }
  void notify(std::condition_variable& changed) override { system_runtime().notify(changed); }
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint until) override {
    if (until == TimePoint::max()) return system_runtime().wait(changed, lock, until);
    system_runtime().wait(changed, lock, system_runtime().now() + milliseconds(1));
    const std::lock_guard of_time(mutex_);
    now_ = std::max(now_, until);
  }
  void wait_for_change(LegBoard& board, std::uint64_t seen, milliseconds most) override {
    system_runtime().wait_for_change(board, seen, most);
  }

 private:
  const milliseconds a_look_;
  std::mutex mutex_;
  TimePoint now_{};
};

// A system that gives one thread, and no further one.
class OneThreadRuntime final : public HastyRuntime {
 public:
  OneThreadRuntime() : HastyRuntime(milliseconds(1)) {}
  Result<std::thread> start(const std::string& name, std::function<void()> body) override {
    if (std::exchange(given_, true)) return Error(ErrorCode::kOutOfMemory, name);
    return HastyRuntime::start(name, std::move(body));
  }

 private:
  bool given_ = false;
};

TEST(Supervisor, NodeLost_NextEpochGivesItsExpertsToTheHostAndAsksNobody) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(2));
  const Epoch next = world.epoch(1);
  EXPECT_GT(next.owners.epoch(), 1u);
  EXPECT_EQ(next.owners.n_slabs(0), 4u);
  EXPECT_EQ(next.owners.n_slabs(kBox1), 0u);
  EXPECT_EQ(next.owners.n_slabs(kBox2), 2u);
  EXPECT_EQ(next.legs[kBox1]->state(), LegState::kLost) << "in its place, so that no epoch keeps its session";
  EXPECT_EQ(next.acknowledged[kBox2], 1u) << "it goes on with the number that it knows";
  EXPECT_TRUE(world.until([&] { return world.abandoned[kBox1] == 1; }));
  EXPECT_TRUE(world.until([&] { return !world.lines.empty(); }));
  EXPECT_EQ(world.look([&] { return world.lines[0]; }),
            "box1:9000: the node is lost (test); its 2 experts are computed here until it is back");
  EXPECT_EQ(world.told(kBox1).experts, 0u);
  EXPECT_TRUE(world.look([&] { return world.acknowledged.empty(); }));
}

// It is told of the loss, and of the end: were it to look by itself alone, this took two hours.
TEST(Supervisor, NodeLost_TheNextEpochWaitsForNoLook) {
  World world(false, std::chrono::hours(1));
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  EXPECT_TRUE(world.until_published(2));
}

TEST(Supervisor, LostNode_IsTriedUntilItIsBack_AndHasItsShareAgain) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{kUnreachable}, {kUnreachable}, {kUnreachable}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(3));
  const Epoch back = world.epoch(2);
  EXPECT_EQ(back.owners.n_slabs(0), 2u);
  EXPECT_EQ(back.owners.n_slabs(kBox1), 2u);
  EXPECT_EQ(back.legs[kBox1]->name(), "box1:9000");
  EXPECT_EQ(back.legs[kBox1]->state(), LegState::kOk);
  EXPECT_GT(back.owners.epoch(), world.epoch(1).owners.epoch());
  EXPECT_LE(back.acknowledged[kBox1], back.owners.epoch());
  EXPECT_EQ(world.look([&] { return world.tried.size(); }), 4u);
  ASSERT_TRUE(world.until([&] { return world.lines.size() == 2; }));
  EXPECT_TRUE(world.lines[1].starts_with("box1:9000: back after ")) << world.lines[1];
  EXPECT_EQ(world.told(kBox1).state, LegState::kOk);
  EXPECT_EQ(world.told(kBox1).counters.rejoins, 1u);
  EXPECT_EQ(world.told(kBox1).experts, 2u);
}

TEST(Supervisor, NodeBack_OthersAcknowledge_AndForgetOnceNoStepCanNameTheOldNumber) {
  World world;
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(3));
  const std::uint64_t number = world.epoch(2).acknowledged[kBox2];
  EXPECT_GT(number, 1u);
  EXPECT_EQ(world.look([&] { return world.acknowledged[kBox2]; }), std::vector<std::uint64_t>{number});
  EXPECT_EQ(world.epoch(2).acknowledged[kBox1], number);
  world.retire(1);
  // The epoch of the loss may still be in use, and names the old number. Were it forgotten now, this would be seen when
  // the next look of the supervisor is over: by then it has let the first epoch's lost session go.
  ASSERT_TRUE(world.until([&] { return world.ended[kBox1] == 1; }));
  EXPECT_TRUE(world.look([&] { return world.forgotten[kBox2].empty(); }));
  world.retire(2);
  EXPECT_TRUE(world.until([&] { return world.forgotten[kBox2] == std::vector<std::uint64_t>{1}; }));
}

TEST(Supervisor, NodeBackWhileAnotherIsDeaf_TheDeafOneGoesOnWithItsNumber) {
  World world;
  world.note([&] { world.deaf = {kBox2}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(3));
  EXPECT_EQ(world.epoch(2).acknowledged[kBox2], 1u);
  EXPECT_GT(world.epoch(2).acknowledged[kBox1], 1u);
}

// By the board's change alone: it looks by itself once an hour.
TEST(Supervisor, Suspect_IsMadeReadyForAtOnce_AndNoMoreOnceItAnswers) {
  World world(false, std::chrono::hours(1));
  LegEntry& box1 = world.board.entry(kNames[kBox1], LegKind::kNode);
  box1.set_state(LegState::kSuspect, "box1:9000: late");
  ASSERT_TRUE(world.until([&] { return world.near_if_lost == 4; }));
  EXPECT_EQ(world.look([&] { return world.near_now; }), 2u);
  box1.set_state(LegState::kOk, "");
  ASSERT_TRUE(world.until([&] { return world.near_if_lost == 2; }));
  EXPECT_EQ(world.look([&] { return world.asked_near; }), 2);
  EXPECT_EQ(world.look([&] { return world.published.size(); }), 1u) << "nobody is out";
}

TEST(Supervisor, NodeLostWhileAnotherIsSuspect_BothAreNear) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.board.entry(kNames[kBox2], LegKind::kNode).set_state(LegState::kSuspect, "box2:9000: late");
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.near_now == 4 && world.near_if_lost == 6; }));
}

TEST(Supervisor, LeaseThatTheNodeHoldsNoMore_IsALoss) {
  World world;
  world.note([&] { world.lease_lost = {kBox2}; });
  ASSERT_TRUE(world.until_published(3));
  EXPECT_EQ(world.epoch(1).owners.n_slabs(kBox2), 0u);
  EXPECT_EQ(world.epoch(2).owners.n_slabs(kBox2), 2u);
  EXPECT_EQ(world.told(kBox2).counters.losses, 1u);
}

TEST(Supervisor, WrongNode_StaysOut) {
  World world;
  world.board.entry(kNames[kBox1], LegKind::kNode).set_state(LegState::kWrong, "box1:9000: other bits");
  ASSERT_TRUE(world.until_published(2));
  world.lose(kBox2);  // this one comes back, after the first would have been tried
  ASSERT_TRUE(world.until_published(4));
  EXPECT_EQ(world.look([&] { return world.tried; }), std::vector<std::uint16_t>{kBox2});
  EXPECT_EQ(world.epoch(3).owners.n_slabs(kBox1), 0u);
  EXPECT_EQ(world.told(kBox1).state, LegState::kWrong);
}

TEST(Supervisor, NodeThatComesBackWrong_StaysOut) {
  World world;
  world.note(
      [&] { world.attempts[kBox1] = {{.error = Error(ErrorCode::kRefused, "box1:9000: other bits"), .wrong = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.lines.size() == 2; }));
  EXPECT_EQ(world.lines[1], "box1:9000: other bits; it stays out until the next start");
  EXPECT_EQ(world.told(kBox1).state, LegState::kWrong);
  world.lose(kBox2);
  ASSERT_TRUE(world.until_published(3));
  EXPECT_EQ(world.look([&] { return std::ranges::count(world.tried, kBox1); }), 1);
}

TEST(Supervisor, NodeThatRefuses_IsToldOnceAndTriedOn) {
  World world;
  const Error refused(ErrorCode::kOutOfMemory, "box1:9000: share needs 2G");
  world.note([&] { world.attempts[kBox1] = {{kUnreachable}, {refused}, {refused}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.lines.size() == 3; }));
  EXPECT_EQ(world.lines[1], "box1:9000: share needs 2G; it is tried again");
  EXPECT_EQ(world.told(kBox1).state, LegState::kOk);
}

TEST(Supervisor, LossWhileAnotherNodeIsBeingOpened_IsPublishedAtOnce) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 1; }));
  world.lose(kBox2);
  ASSERT_TRUE(world.until_published(3));
  EXPECT_EQ(world.epoch(2).owners.n_slabs(0), 6u);
  world.note([&] { world.let_go = true; });
  ASSERT_TRUE(world.until_published(5));
  EXPECT_EQ(world.epoch(4).owners.n_slabs(0), 2u);
}

TEST(Supervisor, NodeThatAnswersNothing_HoldsUpNoOtherThatComesBack) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 1; }));
  world.lose(kBox2);
  ASSERT_TRUE(world.until_published(4)) << "the second waits for the first";
  EXPECT_EQ(world.epoch(3).owners.n_slabs(kBox2), 2u);
  EXPECT_EQ(world.epoch(3).owners.n_slabs(kBox1), 0u);
  world.note([&] { world.let_go = true; });
  ASSERT_TRUE(world.until_published(5));
  EXPECT_EQ(world.epoch(4).owners.n_slabs(kBox1), 2u);
  EXPECT_EQ(world.look([&] { return world.tried; }), (std::vector<std::uint16_t>{kBox1, kBox2})) << "each tried once";
}

TEST(Supervisor, SeveralBackAtOnce_AreOpenedSideBySide) {
  World world;
  world.note([&] { world.attempts = {{kBox1, {{.until_stopped = true}}}, {kBox2, {{.until_stopped = true}}}}; });
  world.lose(kBox1);
  world.lose(kBox2);
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 2; })) << "one waits for the other";
  world.note([&] { world.let_go = true; });
  ASSERT_TRUE(world.until([&] { return world.published.back()->owners.n_slabs(0) == 2; }));
  // Told after it is published, by a thread of the supervisor's.
  const auto rejoins = [&] { return world.told(kBox1).counters.rejoins + world.told(kBox2).counters.rejoins; };
  for (int i = 0; i < 1000 && rejoins() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(rejoins(), 2u);
}

// What it answered before it was lost is checked while it is being taken back.
TEST(Supervisor, NodeFoundWrongWhileItIsBeingOpened_StaysOut) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 1; }));
  world.board.entry(kNames[kBox1], LegKind::kNode).set_state(LegState::kWrong, "box1:9000: other bits");
  world.note([&] { world.let_go = true; });
  world.lose(kBox2);  // this one comes back, after the first would have been taken in
  ASSERT_TRUE(
      world.until([&] { return world.published.back()->owners.n_slabs(kBox2) == 2 && world.tried.size() > 1; }));
  EXPECT_EQ(world.look([&] { return world.published.back()->owners.n_slabs(kBox1); }), 0u);
  EXPECT_EQ(world.told(kBox1).state, LegState::kWrong);
}

TEST(Supervisor, NodeLostBeforeTheFirstEpoch_IsTriedUntilItIsBack) {
  World world(/*without_box1=*/true);
  EXPECT_EQ(world.look([&] { return world.lines.at(0); }),
            "box1:9000: the node is lost (weights lane); its experts are computed here until it is back");
  EXPECT_EQ(world.epoch(0).owners.n_slabs(0), 4u);
  ASSERT_TRUE(world.until_published(2));
  const Epoch back = world.epoch(1);
  EXPECT_EQ(back.owners.n_slabs(kBox1), 2u);
  EXPECT_EQ(back.owners.n_slabs(0), 2u);
  ASSERT_TRUE(world.until([&] { return world.lines.size() == 2; }));
  EXPECT_EQ(world.told(kBox1).state, LegState::kOk);
  EXPECT_EQ(world.told(kBox1).counters.losses, 1u);
  EXPECT_EQ(world.told(kBox1).counters.rejoins, 1u);
}

TEST(Supervisor, LostSession_EndsWhenItsLastEpochIsRetired) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(2));
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 1; }));
  EXPECT_EQ(world.look([&] { return world.ended[kBox1]; }), 0) << "a step may still use its leg";
  world.note([&] { world.let_go = true; });
  world.retire(1);
  EXPECT_TRUE(world.until([&] { return world.ended[kBox1] == 1; }));
}

// A step that began before the node was back may only now find its old session lost.
TEST(Supervisor, LossToldByAStepOfAnOlderEpoch_DoesNotEndTheNewSession) {
  World world;
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(3));
  ASSERT_TRUE(world.until([&] { return world.lines.size() == 2; }));
  world.lose(kBox1);
  world.note([&] { world.lease_lost = {kBox2}; });
  ASSERT_TRUE(world.until_published(4));
  EXPECT_EQ(world.epoch(3).owners.n_slabs(kBox1), 2u);
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.retire(2);
  EXPECT_TRUE(world.until([&] { return world.published.back()->owners.n_slabs(kBox1) == 0; }));
}

// A node lost and back, so that the other has a number to forget; time flies.
class SupervisorHaste : public testing::Test {
 protected:
  // The times at which box2 was told to forget its number, of which it left the first `unanswered` without an answer.
  static std::vector<Runtime::TimePoint> told_to_forget(Runtime& runtime, int unanswered) {
    World world(false, kSupervisorLook, false, runtime);
    world.note([&] { world.forgets_unanswered = unanswered; });
    world.lose(kBox1);
    EXPECT_TRUE(world.until_published(3));
    world.retire(2);
    EXPECT_TRUE(world.until([&] { return world.forget_calls.size() == static_cast<std::size_t>(unanswered) + 1; }));
    return world.look([&] { return world.forget_calls; });
  }
  static void expect_growing_pauses(const std::vector<Runtime::TimePoint>& calls) {
    milliseconds least = kAskAgain;
    for (std::size_t i = 1; i < calls.size(); ++i, least = std::min(2 * least, kTellAgainAtLast)) {
      EXPECT_GE(calls[i] - calls[i - 1], least) << i;
      EXPECT_LT(calls[i] - calls[i - 1], 2 * least) << i;
    }
  }
};

// The moment comes after the worker has looked who is to be told and before it looks how long to wait.
TEST_F(SupervisorHaste, TimeToTellAgainComesBetweenTwoLooks_ItIsTold) {
  HastyRuntime runtime(kAskAgain - milliseconds(10));
  EXPECT_EQ(told_to_forget(runtime, 1).size(), 2u);
}

TEST_F(SupervisorHaste, NodeThatNeverAnswersToForget_IsToldWithPausesThatGrow) {
  HastyRuntime runtime(milliseconds(1));
  expect_growing_pauses(told_to_forget(runtime, 7));
}

// The return of another one would wait for its deadline each time.
TEST_F(SupervisorHaste, NodeThatNeverAnswers_IsNotAskedAgainWhenTheOtherIsBackOnceMore) {
  HastyRuntime runtime(milliseconds(1));
  World world(false, kSupervisorLook, false, runtime);
  world.note([&] {
    world.deaf = {kBox2};
    world.forgets_unanswered = 1'000'000;
  });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.forget_calls.size() >= 6; })) << "by now it is asked every 4 s";
  EXPECT_EQ(world.look([&] { return world.acknowledge_calls[kBox2]; }), 1);
  world.retire(2);
  world.lose(kBox1);
  ASSERT_TRUE(world.until_published(5));
  EXPECT_EQ(world.look([&] { return world.acknowledge_calls[kBox2]; }), 1);
  EXPECT_EQ(world.look([&] { return world.published.back()->acknowledged[kBox2]; }), 1u);
}

// Each time the calls to other nodes wait for it.
TEST_F(SupervisorHaste, NodeThatNeverAnswersToGiveBack_IsAskedWithPausesThatGrow) {
  HastyRuntime runtime(milliseconds(1));
  World world(false, kSupervisorLook, true, runtime);
  world.note([&] {
    world.attempts[kBox1] = {{.until_stopped = true}};
    world.further = {{Error(ErrorCode::kDeadline, "box2:9000: answers too late")}};
    world.give_backs_unanswered = 7;
  });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.give_back_calls.size() == 8; }));
  expect_growing_pauses(world.look([&] { return world.give_back_calls; }));
}

TEST(Supervisor, NoThreadForItsWorker_ErrorNamesIt) {
  OneThreadRuntime runtime;
  LegBoard board;
  SupervisorHooks hooks;
  hooks.take_retired = [] { return std::vector<std::shared_ptr<const Epoch>>(); };
  const auto leg = std::make_shared<IdleLeg>("host", LegKind::kHost);
  const Epoch first{OwnerTable(1, {"host"}, 1, 2, {0, 0}), {leg}, {1}};
  const auto started = Supervisor::start(first, {{"host", LegKind::kHost, leg, {}}}, board, hooks, kBriefPauses,
                                         kSupervisorLook, runtime);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().text(), "terrace-nodes");
}

TEST(Supervisor, StoppedWhileANodeIsBeingOpened_Ends) {
  World world;
  world.note([&] { world.attempts[kBox1] = {{.until_stopped = true}}; });
  world.lose(kBox1);
  ASSERT_TRUE(world.until([&] { return world.tried.size() == 1; }));
  world.supervisor->stop();
  world.supervisor->stop();
  EXPECT_EQ(world.look([&] { return world.published.size(); }), 2u);
}

}  // namespace supervisor_test
}  // namespace terrace::legs
