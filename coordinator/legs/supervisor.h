// Looks after the legs while steps run: takes lost ones out of the owner table, brings nodes back, lets nodes forget
// what no step needs any more. Bits never depend on it: a step that finds a leg lost goes on by itself (dispatcher.h).
//
// Out      A leg that the board has as lost or wrong, or whose lease the node holds no more, is left out of the next
//          epoch at once: its experts are those of whoever holds them already, else the host's; no share changes, so
//          nobody has to be asked.
// Heirs    Then nodes that have room take over those lost experts that do not stay (docs/adr/0018), several side by
//          side: a further share each, on the session that it has, verified and tried; from the next epoch on it owns
//          them. Where that fails all is as it was. When the lost node is back, its heirs give up what they took over,
//          and the memory for it.
// Suspects What a leg owns that is late is made ready here at once, for it may be lost; not any more once it answers.
// Back     A lost node is tried again with growing pauses (retry_schedule.h): a new session, its share of the plan, a
//          canary. Several are opened side by side, so that one that answers nothing holds up no other. Then the legs
//          that stayed acknowledge the epoch's number, as far as they answer, and it is published. A wrong node is not
//          tried: it stays out until the coordinator is started again.
// Threads  Two of its own, and one for each node while it is opened or takes a further share. One watches and publishes
//          and never waits for a node; the other ends sessions of lost nodes and makes all calls to those that are
//          there, none of which waits long (NodeControl::acknowledge()), but for the ends of sessions. The functions
//          below are for the owner.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "coordinator/legs/epoch.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/legs/member.h"
#include "coordinator/legs/retry_schedule.h"
#include "coordinator/legs/runtime.h"

namespace terrace::legs {

// A node's leg on its way from what it owns in `before` to what it owns in `owners`.
struct FurtherShare {
  std::size_t leg = 0;
  std::shared_ptr<Member> member;
  OwnerTable before, owners;
};

// What the supervisor acts by.
struct SupervisorHooks {
  // As Dispatcher's.
  std::function<void(std::shared_ptr<const Epoch>)> publish;
  std::function<std::vector<std::shared_ptr<const Epoch>>()> take_retired;
  // The owner table of that number while the legs with gone[leg] != 0 are out. holds: what legs have beside the plan.
  std::function<OwnerTable(std::span<const std::uint8_t> gone, std::uint64_t epoch, HoldsSlab holds)> replan;
  // The same as it should be once bytes have moved. Empty: nobody inherits.
  std::function<OwnerTable(std::span<const std::uint8_t> gone, std::uint64_t epoch, HoldsSlab holds)> bequeath;
  // The host's leg for what the table gives to it.
  std::function<std::shared_ptr<Leg>(const OwnerTable& owners)> host;
  // `owners` is in use from now on, `if_lost` would be were all suspects out: what the host would have of it is to be
  // brought into memory. No suspects: both are the same. Empty: nobody does that.
  std::function<void(const OwnerTable& owners, const OwnerTable& if_lost)> bring_near;
  // A new session with the node of that leg, its share of `owners` there and tried. Ends soon after stop. `wrong` is
  // set where the error is that it computes other bits.
  std::function<Result<OpenedMember>(std::size_t leg, const OwnerTable& owners, std::stop_token stop, bool& wrong)>
      open;
  // Member::take_further(), and the share is tried. before: what owns its experts now. The leg is used by steps
  // meanwhile. `wrong` as above.
  std::function<Status(const FurtherShare& share, std::stop_token stop, std::uint64_t& bytes_sent, bool& wrong)>
      take_further;
  // A line for people.
  std::function<void(const std::string& line)> tell;
};

// A node that did not answer, or could not give up at once what it has too much, is asked again so much later.
inline constexpr std::chrono::milliseconds kAskAgain{250};
// One that never answers is asked with pauses that double up to this: each time the calls to the other nodes wait until
// its deadline is over.
inline constexpr std::chrono::milliseconds kTellAgainAtLast{4'000};
// Between two looks at leases and retired epochs. A leg that is lost is looked at once: until the next epoch each step
// computes its share by itself, only less well.
inline constexpr std::chrono::milliseconds kSupervisorLook{50};

class Supervisor {
 public:
  // One leg of the table.
  struct Seat {
    std::string name;
    LegKind kind = LegKind::kHost;
    std::shared_ptr<Leg> leg;
    std::shared_ptr<Member> member;  // of a node; else null
    // A node that was lost before there was a first epoch: `leg` says why (out_leg.h), and the epoch has it out.
    bool lost_before = false;
  };

  // seats: the legs of the epoch `first`, in its order, which was published already. Board and runtime outlive the
  // supervisor. Errors as start_thread().
  static Result<std::unique_ptr<Supervisor>> start(const Epoch& first, std::vector<Seat> seats, LegBoard& board,
                                                   SupervisorHooks hooks, const RetryPauses& pauses = {},
                                                   std::chrono::milliseconds look = kSupervisorLook,
                                                   Runtime& runtime = system_runtime());
  // As stop().
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // For a coordinator that ends: no hook is called after it has returned, and leases are renewed no more. Sessions live
  // on as long as epochs hold them. Idempotent.
  void stop();

 private:
  using TimePoint = Runtime::TimePoint;
  using EpochRef = std::shared_ptr<const Epoch>;

  struct LiveEpoch {
    const Epoch* epoch = nullptr;
    std::uint64_t number = 0;
    std::vector<std::uint64_t> acknowledged;  // [legs]
  };

  // Before a node is asked again.
  struct Pause {
    TimePoint until{};
    std::chrono::milliseconds next = kAskAgain;  // the one after this, where it does not answer
  };

  struct Place {
    Seat seat;
    LegEntry* entry = nullptr;
    bool out = false;
    TimePoint out_since{};
    std::uint64_t in_since = 0;  // the epoch that it has been in from then on
    std::uint64_t acknowledged = 0;
    // That the node knows or may know. The last is `acknowledged`; of the others it is told to forget each once no step
    // can name it, until it has heard it: what they brought lies there as long.
    std::vector<std::uint64_t> numbers;
    Pause tell;                // before it is told again to forget, or of an epoch
    std::string told_refusal;  // why the node was not taken back, as it was told last
    // Of a node that has more than the plan gives it: the table whose share it has, under the number `acknowledged`.
    std::optional<OwnerTable> further;
    bool inheriting = false;       // takes a further share
    bool has_surplus = false;      // has more memory reserved than its share takes
    Pause ask;                     // before it is asked again about what it has too much
    std::string told_inheritance;  // why it took none, as it was told last
  };

  // A node that is taking a further share.
  struct Bequest {
    Bequest(FurtherShare what, TimePoint now) : share(std::move(what)), begun(now) {}
    FurtherShare share;
    TimePoint begun;
    std::stop_source stop;
    std::uint64_t bytes_sent = 0;
    bool wrong = false;
    std::optional<Status> taken;  // once it has ended
    std::thread thread;
  };

  // A node that is being opened.
  struct Attempt {
    Attempt(std::size_t of_leg, OwnerTable table) : leg(of_leg), owners(std::move(table)) {}
    std::size_t leg;
    OwnerTable owners;
    bool wrong = false;
    std::optional<Result<OpenedMember>> opened;  // once it has ended
    std::thread thread;
  };

  Supervisor(const Epoch& first, std::vector<Seat> seats, LegBoard& board, SupervisorHooks hooks,
             const RetryPauses& pauses, std::chrono::milliseconds look, Runtime& runtime);
  Status start_threads();
  void watch();
  void work();
  void open(Attempt& attempt);
  // Under the lock.
  void begin_without(std::size_t leg);
  void look_for_losses();
  std::vector<std::uint8_t> suspects() const;
  void bring_near();
  bool is_judged_by_board(const Place& place) const;
  void take_out(std::size_t leg, LegState state);
  void publish();
  void take_retired();
  std::vector<std::uint8_t> gone() const;
  OwnerTable replan(std::span<const std::uint8_t> gone, std::uint64_t epoch) const;
  bool holds(std::size_t leg, std::uint32_t layer, std::uint16_t expert) const;
  void begin_attempt(std::size_t leg);
  // Under the lock, which they give up while a node is asked. now: of this turn of the worker's.
  // These: whether there was anything to do.
  bool let_go(std::unique_lock<std::mutex>& lock);
  bool forget_one(std::unique_lock<std::mutex>& lock, TimePoint now);
  bool may_forget_one(std::size_t leg) const;
  bool finish_attempt(std::unique_lock<std::mutex>& lock);
  static bool is_silent(const Place& place, TimePoint now);
  void ask_others(std::size_t leg, const OwnerTable& owners, std::unique_lock<std::mutex>& lock);
  void note_number(std::size_t leg, std::uint64_t number, const Status& knows);
  // supervisor_heirs.cpp
  bool begin_bequests();
  bool finish_bequest(std::unique_lock<std::mutex>& lock);
  bool take_surplus(std::unique_lock<std::mutex>& lock, TimePoint now);
  bool give_back(std::unique_lock<std::mutex>& lock, TimePoint now);
  void begin_bequest(FurtherShare share);
  void bequeath(Bequest& bequest);  // by a thread of its own
  bool may_inherit(std::size_t leg) const;
  void own_further(Bequest& bequest);
  void keep_with_host(Bequest& bequest);
  void stop_bequests();
  std::optional<TimePoint> next_ask(TimePoint now) const;
  void put_off(Pause& pause, const Status& answer) const;

  void take_in(std::size_t leg, OpenedMember opened, std::uint64_t number);
  void refuse(std::size_t leg, const Error& why, bool wrong);

  LegBoard& board_;
  const SupervisorHooks hooks_;
  const std::chrono::milliseconds look_;
  Runtime& runtime_;
  std::stop_source stop_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Place> places_;  // [legs]
  RetrySchedule schedule_;
  std::uint64_t last_number_;       // of an epoch
  std::vector<LiveEpoch> live_;     // published and not yet retired
  std::vector<EpochRef> retired_;   // the worker lets them go: with the last that has it a session ends
  std::vector<OpenedMember> lost_;  // likewise
  std::list<Attempt> attempts_;     // the worker's; each stays where it is while its thread runs
  std::list<Bequest> bequests_;     // likewise
  std::vector<std::uint8_t> near_;  // [legs] suspects whose experts were asked to be near
  bool may_bequeath_ = false;       // something has changed since lost experts were dealt last

  std::thread watcher_, worker_;  // last: they use all others
};

}  // namespace terrace::legs
