// Tier nodes of a simulation as a supervisor sees them: processes that start and end, sessions with reservations and
// epochs, links with faults. A node judges its coordinator: a batch, a number or a share that a correct one would not
// send it fails the test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/transport/faulty/faulty.h"
#include "common/transport/loopback/loopback.h"
#include "coordinator/legs/member.h"
#include "coordinator/legs/node_leg.h"
#include "tests/fault/simulated_threads.h"
#include "tests/unit/coordinator/legs/fake_node.h"

namespace terrace::legs {

using Slab = std::pair<std::uint32_t, std::uint16_t>;  // layer, expert
std::set<Slab> slabs_of(const OwnerTable& owners, std::size_t leg);

// The clock of the simulation's threads, for steps and for links.
class SupervisedClock final : public StepClock, public transport::FaultClock {
 public:
  using TimePoint = StepClock::TimePoint;
  SupervisedClock(test::SimulatedThreads& threads, std::mt19937_64& random) : threads_(threads), random_(random) {}
  TimePoint now() override { return threads_.now(); }
  TimePoint now() const override { return threads_.time(); }
  void wait(std::span<pollfd>, TimePoint until) override {
    threads_.sleep(std::min(until, threads_.time() + std::chrono::microseconds(1 + random_() % 400)));
  }

 private:
  test::SimulatedThreads& threads_;
  std::mt19937_64& random_;
};

// What all nodes of a world share.
struct NodeWorld {
  const test::TestModel& model;
  test::SimulatedThreads& threads;
  SupervisedClock& clock;
  std::mt19937_64& random;
  bool faults = true;  // links of connections to come have some, calls fail now and then

  void pass(std::chrono::microseconds most) {
    threads.sleep(threads.time() + std::chrono::microseconds(random() % static_cast<std::uint64_t>(most.count())));
  }
  bool happens(unsigned once_in) { return faults && random() % once_in == 0; }
};

class SimulatedNode {
 public:
  // planned: its share; room: slabs that it takes beside.
  SimulatedNode(NodeWorld& world, std::string name, std::size_t leg, std::set<Slab> planned, std::size_t room);

  // What happens to it.
  void kill();
  void start();
  void cut_links();
  void set_mute(bool mute) { mute_ = mute; }  // it answers no batch
  void set_deaf(bool deaf) { deaf_ = deaf; }  // and no call
  bool up() const { return node_ != nullptr; }

  // A session as the coordinator's supervisor opens it. `wrong` as SupervisorHooks::open.
  Result<OpenedMember> open(const OwnerTable& owners, const std::stop_token& stop, bool& wrong);
  void step();

  // Asked when a batch has come: whether a step that is under way has sent it, by the epoch that is named.
  std::function<bool(const Leg* leg, std::uint64_t epoch)> is_awaited;

  const std::string& name() const { return name_; }
  const std::set<Slab>& planned() const { return planned_; }
  std::size_t room() const { return room_; }
  bool computes_wrong = false;
  // Of the session that `leg` is of; null: it has ended, here.
  const std::map<std::uint64_t, std::set<Slab>>* epochs_of(const Leg* leg) const;
  // It has one session, with one epoch, which takes all that is reserved: `share`.
  bool holds_just(const std::set<Slab>& share) const;
  std::string describe() const;

 private:
  class Session;
  struct Held {
    const Session* session = nullptr;
    const Leg* leg = nullptr;
    std::size_t reserved = 0;                          // slabs
    std::map<std::uint64_t, std::set<Slab>> epochs{};  // what each may use
    SupervisedClock::TimePoint ends_at = SupervisedClock::TimePoint::max();
  };
  void answer(test::Peer& peer, const wire::Frame& frame);
  Held* find(std::uint64_t session);
  Status call(std::uint64_t session, bool abandoned);  // takes its time; an error: nobody answers
  Status answer_to_call() const;                       // once it is done; an error: the answer was lost
  std::size_t reserved() const;
  void expire();
  std::unique_ptr<Lane> open_lane(std::uint64_t session, wire::Lane which, const std::stop_token& stop, Status& why);

  NodeWorld& world_;
  const std::string name_;
  const std::size_t leg_;
  const std::set<Slab> planned_;
  const std::size_t room_;
  std::shared_ptr<transport::LoopbackTransport> network_ = std::make_shared<transport::LoopbackTransport>();
  std::vector<std::unique_ptr<transport::FaultyTransport>> links_;
  std::unique_ptr<test::FakeNode> node_;
  test::NodeBrain brain_;
  bool mute_ = false, deaf_ = false;
  std::uint64_t last_session_ = 0;
  std::map<std::uint64_t, Held> sessions_;
};

}  // namespace terrace::legs
