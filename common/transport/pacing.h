// How fast bulk and weights may leave while decode steps live, so that a decode batch does not wait behind them in the
// queue of a card or a switch (docs/wire.md 7): decode batches and all of these together at most kPacedShare of what
// the link was measured to take. Shared by the coordinator's lanes and the node's connections.
//
// The measure is the system's: bytes confirmed by the peer over the time in which any were on their way, of stretches
// of at least kStretch in which nothing was paced. Several connections take it together, but no more than all of them
// sent while the stretch lasted: such that send in turn have the whole of it each. Before the first one nothing is
// known, and nothing paced.
//
// A first measure that was taken while others had the link, or the sender no time, is too low, and a server may never
// be without a step again. So while steps go on the link is tried now and then: for a stretch, all connections together
// send an eighth more than the measure. Where that much is confirmed it is the new measure, and the next trial follows
// soon; where it is not, a queue of some 12 ms has come and gone, and the next is further away each time.
//
// A measure may be too high too: of an earlier session whose node is back over a slower link, or of a link that others
// have since. A paced connection cannot show that its link takes more than its pace, but it can show that it takes
// less: where in kShortStretches stretches one after the other, bytes were on their way all the time and fewer than
// kShort of the pace were confirmed, the most that all connections and decode batches moved in one of them is the
// measure from then on. It rises again as above. Nothing is lowered where it may have been an end that was slow: a
// peer whose window was full, a sender that had nothing ready (bytes are on their way all the time also where it wakes
// late and the round trip is longer), or a system that tells neither.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/transport/connection.h"

namespace terrace::transport {

inline constexpr double kPacedShare = 0.8;
inline constexpr double kTrialShare = 1.125;
// Whatever decode batches take, so much of the measure is left to the others.
inline constexpr double kLeastShare = 0.125;

// Whether decode steps are under way in this process. Any thread.
class DecodeActivity {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // A layer's batch follows the one before it sooner, in all but very slow models; those wait for other things.
  static constexpr std::chrono::milliseconds kLives{200};

  // A decode batch is sent, or has come.
  void seen(TimePoint now) { last_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  // Of such a batch or its reply, towards a peer.
  void sent(std::uint64_t bytes) { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  std::uint64_t total_sent() const { return sent_.load(std::memory_order_relaxed); }
  bool live(TimePoint now) const {
    const TimePoint::duration last(last_.load(std::memory_order_relaxed));
    return last.count() != 0 && now.time_since_epoch() - last < kLives;
  }

 private:
  std::atomic<TimePoint::rep> last_ = 0;
  std::atomic<std::uint64_t> sent_ = 0;  // bytes
};

// The link to one peer, which several paced connections share. Any thread.
class LinkRate {
 public:
  using TimePoint = DecodeActivity::TimePoint;
  // A connection that sent nothing for so long leaves its part to the others.
  static constexpr std::chrono::milliseconds kSends{100};

  // Bytes a second; 0: not measured.
  std::uint64_t measured() const { return measured_.load(std::memory_order_relaxed); }
  // The most counts: less is what others took of the link.
  void add(std::uint64_t bytes_per_second);
  // The link took no more while more was on its way. Never raises it.
  void lower(std::uint64_t bytes_per_second);
  // A further connection's place among them, its own until leave().
  std::size_t join();
  void leave(std::size_t place);
  void sent(std::size_t place, std::uint64_t bytes, TimePoint now) {
    total_sent_.fetch_add(bytes, std::memory_order_relaxed);
    last_sent_[place].store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // By all connections together, bytes.
  std::uint64_t total_sent() const { return total_sent_.load(std::memory_order_relaxed); }
  // Connections that send now, at least one.
  unsigned senders(TimePoint now) const;
  // Of the measure, what all connections together may send now, while steps live. Begins and ends trials; `tries` is
  // false for a connection that is given too little to take part in one, which begins none.
  double share(TimePoint now, bool tries = true);
  // No step lives: no trial is due, or goes on.
  void rest();
  // A trial has told what it was to tell.
  void end_trial(TimePoint now);
  // Steps go on for so long before the first trial, and before the next one where the last found nothing new, or did.
  static constexpr std::chrono::milliseconds kFirstTrial{5'000}, kLongestPause{60'000}, kNextTrial{300};
  // What a connection was last given; 0: none is paced, or none was since the last step ended.
  std::uint64_t pace() const { return pace_.load(std::memory_order_relaxed); }
  void set_pace(std::uint64_t bytes_per_second) { pace_.store(bytes_per_second, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> measured_ = 0;
  std::atomic<std::uint64_t> pace_ = 0;
  std::atomic<std::uint64_t> total_sent_ = 0;
  // Times since the clock's epoch; 0: none is due, none goes on. Whoever moves one acts on it.
  std::atomic<TimePoint::rep> next_trial_ = 0, trial_ends_ = 0;
  std::atomic<TimePoint::rep> pause_ = TimePoint::duration(kFirstTrial).count();
  std::atomic<std::uint64_t> before_trial_ = 0;  // measured() then
  static constexpr std::size_t kPlaces = 16;     // more connections than a session has at once
  std::atomic<std::uint32_t> taken_ = 0;         // a bit for each place
  // The last is of all that found no place free.
  std::array<std::atomic<TimePoint::rep>, kPlaces + 1> last_sent_{};
};

// One connection's end of it. The connection's owner.
class Pacer {
 public:
  static constexpr std::uint64_t kStretch = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kTrialStretch = std::uint64_t{256} << 10;  // the link may be thought to be slow
  // Of paced stretches.
  static constexpr unsigned kShortStretches = 3;
  static constexpr double kShort = 0.9;

  // Both are borrowed.
  Pacer(const DecodeActivity& decode, LinkRate& rate) : decode_(decode), rate_(rate), place_(rate.join()) {}
  ~Pacer() { rate_.leave(place_); }
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  // To be called while the connection sends, and once in a while when it does not: a look at its counters, now and then
  // a system call.
  void follow(Connection& connection, LinkRate::TimePoint now);
  // Of the measure, what this connection is given at the most while steps live, also during a trial.
  void set_most(double share) { most_ = share; }
  // Another connection stands in the place of the one before, without a pace.
  void start_again();

 private:
  struct Allowed {
    double rate = 0;  // bytes a second; 0: no pace
    bool trial = false;
  };
  Allowed allowed(LinkRate::TimePoint now);  // all paced connections together
  Allowed own_part(const Allowed& all, LinkRate::TimePoint now) const;
  void look_at_decode(std::uint64_t measured, LinkRate::TimePoint now);
  void measure(const Connection& connection, std::uint64_t sent, LinkRate::TimePoint now);
  void look_for_shortfall(const Connection& connection, std::uint64_t sent, LinkRate::TimePoint now);
  void count_shortfall(bool short_of_pace, LinkRate::TimePoint now);
  bool fell_short(const SentProgress& progress, LinkRate::TimePoint now) const;
  // What the link took, bytes a second, when so many were confirmed in a stretch of so much busy time (not 0).
  std::uint64_t rate_of(std::uint64_t bytes, std::chrono::microseconds busy, LinkRate::TimePoint now) const;

  // Unpaced, a trial's, or of one pace.
  struct Stretch {
    SentProgress from;
    std::uint64_t until = 0;  // bytes sent
    unsigned senders = 1;
    LinkRate::TimePoint since{};
    std::uint64_t total = 0;   // LinkRate::total_sent()
    std::uint64_t decode = 0;  // DecodeActivity::total_sent()
  };
  Stretch begin_stretch(const SentProgress& progress, std::uint64_t until, unsigned senders,
                        LinkRate::TimePoint now) const;
  const DecodeActivity& decode_;
  LinkRate& rate_;
  const std::size_t place_;
  double most_ = kTrialShare;
  std::uint64_t pace_ = 0;
  bool tries_ = false;      // pace_ is a trial's
  std::uint64_t sent_ = 0;  // bytes, when last looked at
  std::optional<Stretch> stretch_;
  unsigned n_short_ = 0;             // stretches of this pace, the last ones
  std::uint64_t most_in_short_ = 0;  // bytes a second, of all
  // What decode batches took, of late.
  double decode_rate_ = 0;  // bytes a second
  LinkRate::TimePoint decode_since_{};
  std::uint64_t decode_before_ = 0;  // DecodeActivity::total_sent() then
};

}  // namespace terrace::transport
