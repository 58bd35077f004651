// The supervisor with legs and nodes that do what a test says.
#include "coordinator/legs/supervisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <type_traits>

#include "coordinator/legs/out_leg.h"

namespace terrace::legs {
namespace supervisor_test {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience{60};  // only a hang reaches it
constexpr RetryPauses kBriefPauses{
    .first = milliseconds(1), .longest = milliseconds(2), .steady = milliseconds(60'000)};
constexpr std::uint16_t kBox1 = 1, kBox2 = 2;
const std::vector<std::string> kNames = {"host", "box1:9000", "box2:9000"};

class IdleLeg final : public Leg {
 public:
  IdleLeg(std::string name, LegKind kind) : name_(std::move(name)), kind_(kind) {}
  const std::string& name() const override { return name_; }
  LegKind kind() const override { return kind_; }
  LegState state() const override { return LegState::kOk; }
  std::uint64_t experts() const override { return 0; }
  Result<Ticket> submit(const LegBatch&) override { return Error(ErrorCode::kInternal, "never asked"); }
  Status collect(Ticket, kernels::SumsView, std::span<std::uint8_t>) override { return {}; }
  LegCounters counters() const override { return {}; }

 private:
  const std::string name_;
  const LegKind kind_;
};

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

// Everything around a supervisor. All under one lock, so that tests can wait for whatever it does.
class World {
 public:
  // What becomes of one attempt to open a node: it is back, or why not.
  struct Attempt {
    std::optional<Error> error{};
    bool wrong = false;
    bool until_stopped = false;  // it blocks until the supervisor stops, or the test lets it go
  };

  // A session of a node.
  class Session final : public Member {
   public:
    Session(World& world, std::uint16_t leg) : world_(world), leg_(kNames[leg], LegKind::kNode), at_(leg) {}
    ~Session() override {
      world_.note([this] { ++world_.ended[at_]; });
    }
    bool lease_lost() const override {
      return world_.look([this] { return world_.lease_lost.contains(at_); });
    }
    Status acknowledge(const OwnerTable& owners, std::size_t) override {
      return world_.look([&]() -> Status {
        if (world_.deaf.contains(at_)) return Error(ErrorCode::kDeadline, "deaf");
        world_.acknowledged[at_].push_back(owners.epoch());
        return {};
      });
    }
    Status forget(std::uint64_t epoch) override {
      Status told;
      world_.note([&] {
        world_.forgotten[at_].push_back(epoch);
        world_.forget_calls.push_back(world_.runtime_.now());
        if (world_.forgets_unanswered == 0) return;
        --world_.forgets_unanswered;
        told = Error(ErrorCode::kDeadline, "no answer");
      });
      return told;
    }
    Status take_further(const OwnerTable&, std::size_t, std::stop_token, std::uint64_t&) override {
      return Error(ErrorCode::kInternal, "asked by the hook alone");
    }
    Status give_back(const OwnerTable& owners, std::size_t leg) override {
      Status given;
      world_.note([&] {
        world_.given_back[at_].push_back(owners.n_slabs(leg));
        world_.give_back_calls.push_back(world_.runtime_.now());
        if (world_.give_backs_unanswered == 0) return;
        --world_.give_backs_unanswered;
        given = Error(ErrorCode::kDeadline, "no answer");
      });
      return given;
    }
    void abandon() override {
      world_.note([this] { ++world_.abandoned[at_]; });
    }
    IdleLeg& leg() { return leg_; }

   private:
    World& world_;
    IdleLeg leg_;
    const std::uint16_t at_;
  };

  explicit World(bool without_box1 = false, milliseconds look = kSupervisorLook, bool nodes_have_room = false,
                 Runtime& runtime = system_runtime())
      : nodes_have_room_(nodes_have_room), runtime_(runtime) {
    for (std::uint16_t leg = 0; leg < kNames.size(); ++leg)
      board.entry(kNames[leg], leg == 0 ? LegKind::kHost : LegKind::kNode).set_experts(2);
    std::vector<Supervisor::Seat> seats = {
        {"host", LegKind::kHost, std::make_shared<IdleLeg>("host", LegKind::kHost), {}}};
    for (const std::uint16_t leg : {kBox1, kBox2}) {
      const auto session = std::make_shared<Session>(*this, leg);
      seats.push_back({kNames[leg], LegKind::kNode, {session, &session->leg()}, session});
    }
    if (without_box1) {
      seats[kBox1].leg =
          make_out_leg(kNames[kBox1], LegKind::kNode, LegState::kLost, "box1:9000: the node is lost (weights lane)");
      seats[kBox1].member.reset();
      seats[kBox1].lost_before = true;
    }
    first_ = std::make_shared<const Epoch>(
        Epoch{table({0, std::uint8_t{without_box1}, 0}, 1), {seats[0].leg, seats[1].leg, seats[2].leg}, {1, 1, 1}});
    published.push_back(first_);
    supervisor = Supervisor::start(*first_, std::move(seats), board, hooks(), kBriefPauses, look, runtime).value();
  }
  // Sessions end here, and say so.
  ~World() {
    supervisor.reset();
    published.clear();
    retired_.clear();
    first_.reset();
  }

  // Six experts, two a leg; a leg that is gone leaves its own to the host.
  static OwnerTable table(
      std::vector<std::uint8_t> gone, std::uint64_t epoch,
      HoldsSlab holds = [](std::size_t, std::uint32_t, std::uint16_t) { return false; }) {
    std::vector<std::uint16_t> owners = {0, 0, 1, 1, 2, 2};
    for (std::uint16_t expert = 0; expert < owners.size(); ++expert) {
      if (gone[owners[expert]] == 0) continue;
      owners[expert] = 0;
      for (const std::uint16_t leg : {kBox1, kBox2})
        if (gone[leg] == 0 && holds(leg, 0, expert)) owners[expert] = leg;
    }
    return {epoch, kNames, 1, 6, std::move(owners)};
  }

  template <class Do>
  void note(Do&& what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    changed_.notify_all();
  }
  template <class See>
  std::invoke_result_t<See> look(See&& what) {
    const std::lock_guard lock(mutex_);
    return what();
  }
  template <class Condition>
  [[nodiscard]] bool until(Condition&& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }

  void lose(std::uint16_t leg) {
    board.entry(kNames[leg], LegKind::kNode).set_state(LegState::kLost, kNames[leg] + ": the node is lost (test)");
  }
  LegReport told(std::uint16_t leg) { return board.entry(kNames[leg], LegKind::kNode).report(); }
  [[nodiscard]] bool until_published(std::size_t n) {
    return until([&] { return published.size() >= n; });
  }
  Epoch epoch(std::size_t n) {
    return look([&] { return *published.at(n); });
  }
  // What the dispatcher does with the first `n` epochs once no step has them.
  void retire(std::size_t n) {
    note([&] {
      for (std::size_t i = 0; i < n; ++i)
        if (published[i]) retired_.push_back(std::move(published[i]));
      if (n > 0) first_.reset();
    });
  }

  LegBoard board;
  std::vector<std::shared_ptr<const Epoch>> published;
  std::map<std::uint16_t, std::deque<Attempt>> attempts;  // in order; none left: the node is back
  std::vector<std::uint16_t> tried;
  std::map<std::uint16_t, int> ended, abandoned;
  std::map<std::uint16_t, std::vector<std::uint64_t>> acknowledged, forgotten;
  std::set<std::uint16_t> lease_lost, deaf;
  // Where nodes have room for all: what becomes of one further share after the other; none left: it is taken.
  std::deque<Attempt> further;
  std::vector<std::uint16_t> inherited;  // the nodes asked
  std::map<std::uint16_t, std::vector<std::uint64_t>> given_back;
  int forgets_unanswered = 0, give_backs_unanswered = 0;  // the next ones
  std::vector<Runtime::TimePoint> forget_calls, give_back_calls;
  std::vector<std::string> lines;
  // What the host has, and would have were suspects lost, as it was asked to be near last; and how often it was.
  std::uint64_t near_now = 0, near_if_lost = 0;
  int asked_near = 0;
  bool let_go = false;
  std::unique_ptr<Supervisor> supervisor;

 private:
  SupervisorHooks hooks() {
    SupervisorHooks hooks;
    hooks.publish = [this](std::shared_ptr<const Epoch> epoch) {
      note([&] { published.push_back(std::move(epoch)); });
    };
    hooks.take_retired = [this] { return look([this] { return std::exchange(retired_, {}); }); };
    hooks.replan = [](std::span<const std::uint8_t> gone, std::uint64_t epoch, HoldsSlab holds) {
      return table({gone.begin(), gone.end()}, epoch, holds);
    };
    if (nodes_have_room_)
      hooks.bequeath = [](std::span<const std::uint8_t> gone, std::uint64_t epoch, HoldsSlab) {
        return table({gone.begin(), gone.end()}, epoch, [](std::size_t, std::uint32_t, std::uint16_t) { return true; });
      };
    hooks.take_further = [this](const FurtherShare& share, const std::stop_token& stop, std::uint64_t& bytes_sent,
                                bool& wrong) { return take_further(share, stop, bytes_sent, wrong); };
    hooks.host = [](const OwnerTable&) { return std::make_shared<IdleLeg>("host", LegKind::kHost); };
    hooks.bring_near = [this](const OwnerTable& owners, const OwnerTable& if_lost) {
      note([&] {
        near_now = owners.n_slabs(0);
        near_if_lost = if_lost.n_slabs(0);
        ++asked_near;
      });
    };
    hooks.open = [this](std::size_t leg, const OwnerTable&, const std::stop_token& stop, bool& wrong) {
      return open(static_cast<std::uint16_t>(leg), stop, wrong);
    };
    hooks.tell = [this](const std::string& line) { note([&] { lines.push_back(line); }); };
    return hooks;
  }

  // What becomes of it, once it has.
  Status outcome(std::deque<Attempt>& of, const std::stop_token& stop, bool& wrong) {
    Attempt attempt;
    note([&] {
      if (of.empty()) return;
      attempt = of.front();
      of.pop_front();
    });
    if (attempt.until_stopped) {
      const std::stop_callback stopped(stop, [this] { note([] {}); });
      if (!until([&] { return stop.stop_requested() || let_go; })) return Error(ErrorCode::kInternal, "never stopped");
    }
    wrong = attempt.wrong;
    return attempt.error ? Status(*attempt.error) : Status();
  }

  Status take_further(const FurtherShare& share, const std::stop_token& stop, std::uint64_t& bytes_sent, bool& wrong) {
    note([&] { inherited.push_back(static_cast<std::uint16_t>(share.leg)); });
    bytes_sent = 1000;
    TERRACE_RETURN_IF_ERROR(outcome(further, stop, wrong));
    if (stop.stop_requested()) return Error(ErrorCode::kPeerGone, "given up");
    return {};
  }

  Result<OpenedMember> open(std::uint16_t leg, const std::stop_token& stop, bool& wrong) {
    std::deque<Attempt>* of = nullptr;
    note([&] {
      tried.push_back(leg);
      lease_lost.erase(leg);
      of = &attempts[leg];
    });
    TERRACE_RETURN_IF_ERROR(outcome(*of, stop, wrong));
    const auto session = std::make_shared<Session>(*this, leg);
    return OpenedMember{session, {session, &session->leg()}};
  }

  const bool nodes_have_room_;
  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<const Epoch>> retired_;
  std::shared_ptr<const Epoch> first_;
};

const Error kUnreachable(ErrorCode::kPeerGone, "box1:9000: cannot be reached");

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

// ---- heirs ----------------------------------------------------------------------------------------------------------

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
