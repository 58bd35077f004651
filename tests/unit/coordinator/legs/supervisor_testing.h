// A supervisor with legs and nodes that do what a test says.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <type_traits>

#include "coordinator/legs/out_leg.h"
#include "coordinator/legs/supervisor.h"

namespace terrace::legs::supervisor_testing {

using std::chrono::milliseconds;

inline constexpr std::chrono::seconds kPatience{60};  // only a hang reaches it
inline constexpr RetryPauses kBriefPauses{
    .first = milliseconds(1), .longest = milliseconds(2), .steady = milliseconds(60'000)};
inline constexpr std::uint16_t kBox1 = 1, kBox2 = 2;
inline const std::vector<std::string> kNames = {"host", "box1:9000", "box2:9000"};

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
        ++world_.acknowledge_calls[at_];
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
  std::map<std::uint16_t, int> ended, abandoned, acknowledge_calls;
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

inline const Error kUnreachable(ErrorCode::kPeerGone, "box1:9000: cannot be reached");

}  // namespace terrace::legs::supervisor_testing
