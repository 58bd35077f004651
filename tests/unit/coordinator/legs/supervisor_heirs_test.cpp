// What a lost node owned goes to a node that has room for it, and back.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/coordinator/legs/supervisor_testing.h"

namespace terrace::legs {
namespace supervisor_heirs_test {

using namespace supervisor_testing;

// Box1 is lost for as long as the test likes, box2 has room for what it owned.
class SupervisorHeirs : public testing::Test {
 protected:
  SupervisorHeirs() {
    world_.note([&] { world_.attempts[kBox1] = {{.until_stopped = true}}; });
  }
  [[nodiscard]] bool until_told(const std::string& part) {
    return world_.until([&] {
      return std::ranges::any_of(world_.lines,
                                 [&](const std::string& line) { return line.find(part) != std::string::npos; });
    });
  }
  std::uint64_t owned_now(std::size_t leg) {
    return world_.look([&] { return world_.published.back()->owners.n_slabs(leg); });
  }
  World world_{false, kSupervisorLook, true};
};

TEST_F(SupervisorHeirs, NodeLost_TheHostHasItsExpertsAtOnceAndTheSurvivorOnceTheyHaveMoved) {
  world_.note([&] { world_.further = {{.until_stopped = true}}; });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until_published(2));
  EXPECT_EQ(world_.epoch(1).owners.n_slabs(0), 4u);
  EXPECT_EQ(world_.epoch(1).acknowledged[kBox2], 1u);
  ASSERT_TRUE(world_.until([&] { return world_.inherited.size() == 1; }));
  EXPECT_EQ(world_.look([&] { return world_.published.size(); }), 2u) << "it does not own them before it has them";
  world_.note([&] { world_.let_go = true; });  // box1 comes back as well; whichever is first
  ASSERT_TRUE(world_.until_published(3));
}

TEST_F(SupervisorHeirs, ShareTaken_TheNextEpochNamesItsNumberAndTheOldOneIsForgotten) {
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until_published(3));
  const Epoch moved = world_.epoch(2);
  EXPECT_EQ(moved.owners.n_slabs(kBox2), 4u);
  EXPECT_EQ(moved.owners.n_slabs(0), 2u);
  EXPECT_GT(moved.acknowledged[kBox2], 1u);
  EXPECT_TRUE(until_told("box2:9000: has taken over 2 experts of lost nodes in "));
  EXPECT_EQ(world_.told(kBox2).counters.weight_bytes_sent, 1000u);
  EXPECT_EQ(world_.told(kBox2).experts, 4u);
  world_.retire(2);
  EXPECT_TRUE(world_.until([&] { return world_.forgotten[kBox2] == std::vector<std::uint64_t>{1}; }));
}

// Found by SupervisedSimulation: what the epoch had brought stayed on the node for good.
TEST_F(SupervisorHeirs, NodeThatDoesNotAnswerToForget_IsToldAgain) {
  world_.note([&] { world_.forgets_unanswered = 1; });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until_published(3));
  world_.retire(2);
  EXPECT_TRUE(world_.until([&] { return world_.forgotten[kBox2] == std::vector<std::uint64_t>{1, 1}; }));
}

TEST_F(SupervisorHeirs, ShareThatFailed_IsForgottenForCertainAndThenGivenBack) {
  world_.note([&] {
    world_.further = {{Error(ErrorCode::kDeadline, "box2:9000: answers too late")}};
    world_.forgets_unanswered = 1;
  });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until([&] { return !world_.given_back[kBox2].empty(); }));
  const auto forgotten = world_.look([&] { return world_.forgotten[kBox2]; });
  ASSERT_EQ(forgotten.size(), 2u);
  EXPECT_EQ(forgotten[0], forgotten[1]);
}

TEST_F(SupervisorHeirs, SurvivorRefuses_TheHostKeepsThemAndItIsToldOnce) {
  world_.note([&] { world_.further = {{Error(ErrorCode::kOutOfMemory, "box2:9000: share needs 2G")}}; });
  world_.lose(kBox1);
  ASSERT_TRUE(until_told("box2:9000: share needs 2G; it takes over no lost node's experts, they stay here"));
  ASSERT_TRUE(world_.until([&] { return world_.given_back[kBox2] == std::vector<std::uint64_t>{2}; }))
      << "what was reserved for them is given back";
  EXPECT_EQ(owned_now(0), 4u);
  EXPECT_EQ(world_.look([&] { return world_.published.size(); }), 2u);
  EXPECT_EQ(world_.look([&] { return world_.inherited.size(); }), 1u) << "it is not asked again and again";
  EXPECT_TRUE(world_.look([&] { return world_.forgotten[kBox2].size() == 1; })) << "the epoch that it was to have";
}

TEST_F(SupervisorHeirs, SurvivorFailsTheCanary_IsWrongAndOut) {
  world_.note(
      [&] { world_.further = {{.error = Error(ErrorCode::kRefused, "box2:9000: other bits"), .wrong = true}}; });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until_published(3));
  EXPECT_EQ(owned_now(0), 6u);
  EXPECT_EQ(world_.told(kBox2).state, LegState::kWrong);
}

// No step has the epoch in which it came back: what the board says of it is of the session before, and says nothing.
TEST_F(SupervisorHeirs, SurvivorThatHasJustComeBackFailsTheCanary_IsWrongAndOutAllTheSame) {
  world_.note([&] {
    world_.further = {{.until_stopped = true}};  // box1, of what was box2's
    world_.attempts[kBox2] = {{.until_stopped = true}};
  });
  world_.lose(kBox2);
  ASSERT_TRUE(world_.until([&] { return world_.further.empty(); }));
  world_.note([&] { world_.let_go = true; });
  ASSERT_TRUE(until_told("box2:9000: back after "));
  world_.note([&] {
    world_.let_go = false;  // box1 stays away
    world_.further = {{.error = Error(ErrorCode::kRefused, "box2:9000: other bits"), .wrong = true}};
  });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until([&] { return world_.published.back()->owners.n_slabs(0) == 6; }));
  EXPECT_EQ(world_.told(kBox2).state, LegState::kWrong);
}

TEST_F(SupervisorHeirs, SurvivorLostWhileItInherits_TheHostHasAll) {
  world_.note([&] {
    world_.further = {{.error = Error(ErrorCode::kPeerGone, "box2:9000: cut"), .until_stopped = true}};
    world_.attempts[kBox2] = {{.until_stopped = true}};
  });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until([&] { return world_.inherited.size() == 1; }));
  world_.lose(kBox2);
  ASSERT_TRUE(world_.until([&] { return world_.published.back()->owners.n_slabs(0) == 6; }));
  EXPECT_EQ(world_.look([&] { return world_.abandoned[kBox2]; }), 1);
  world_.note([&] { world_.let_go = true; });  // and both come back
  ASSERT_TRUE(world_.until([&] {
    const OwnerTable& owners = world_.published.back()->owners;
    return owners.n_slabs(0) == 2 && owners.n_slabs(kBox1) == 2 && owners.n_slabs(kBox2) == 2;
  }));
}

TEST_F(SupervisorHeirs, LostNodeIsBack_ItsHeirGivesUpWhatItTookAndTheMemory) {
  world_.lose(kBox1);
  ASSERT_TRUE(until_told("has taken over"));
  world_.note([&] { world_.let_go = true; });
  ASSERT_TRUE(until_told("box1:9000: back after "));
  EXPECT_EQ(owned_now(kBox1), 2u);
  EXPECT_EQ(owned_now(kBox2), 2u);
  ASSERT_TRUE(world_.until([&] { return world_.acknowledged[kBox2].size() == 1; })) << "an epoch without them";
  ASSERT_TRUE(
      world_.until([&] { return world_.published.back()->acknowledged[kBox2] == world_.acknowledged[kBox2].front(); }));
  EXPECT_TRUE(world_.look([&] { return world_.given_back[kBox2].empty(); })) << "steps may still use it";
  world_.retire(world_.look([&] { return world_.published.size(); }) - 1);
  EXPECT_TRUE(world_.until([&] { return world_.given_back[kBox2] == std::vector<std::uint64_t>{2}; }));
}

TEST_F(SupervisorHeirs, LostNodeIsBackWhileItsHeirIsAtIt_TheHeirIsStopped) {
  world_.note([&] {
    world_.attempts[kBox1] = {};
    world_.further = {{.until_stopped = true}};
  });
  world_.lose(kBox1);
  ASSERT_TRUE(until_told("box1:9000: back after "));
  if (world_.look([&] { return world_.inherited.empty(); })) return;  // back before anybody was asked
  ASSERT_TRUE(world_.until([&] { return !world_.given_back[kBox2].empty(); }));
  EXPECT_EQ(owned_now(kBox2), 2u);
  EXPECT_FALSE(world_.look([&] {
    return std::ranges::any_of(world_.lines, [](const std::string& line) { return line.starts_with("box2"); });
  })) << "nothing has failed";
}

TEST_F(SupervisorHeirs, StoppedWhileAShareMoves_Ends) {
  world_.note([&] { world_.further = {{.until_stopped = true}}; });
  world_.lose(kBox1);
  ASSERT_TRUE(world_.until([&] { return world_.inherited.size() == 1; }));
  world_.supervisor->stop();
  EXPECT_EQ(world_.look([&] { return world_.published.size(); }), 2u);
}

}  // namespace supervisor_heirs_test
}  // namespace terrace::legs
