// Threads of which one runs at a time, until it waits; which one runs next, and when, is the seed's choice alone. So
// what several threads do to each other is a schedule that can be run again, and takes no time but what it computes.
//
// Time goes by only while all of them wait: then it is what the first of them waits for. Code under test has to do all
// of its waiting by a Runtime (or a StepClock made of this), and to hold no lock while it waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "coordinator/legs/runtime.h"

namespace terrace::legs::test {

class SimulatedThreads final : public Runtime {
 public:
  using Duration = TimePoint::duration;
  // The thread that makes it is the first one.
  explicit SimulatedThreads(std::uint64_t seed);
  // Every other thread has ended, and was joined.
  ~SimulatedThreads() override;

  // A microsecond goes by with each look, so that whoever polls gets on.
  TimePoint now() override;
  // Nothing goes by.
  TimePoint time() const { return now_; }
  Result<std::thread> start(const std::string& name, std::function<void()> body) override;
  void join(std::thread& thread) override;
  void notify(std::condition_variable& changed) override;
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint until) override;
  void wait_for_change(LegBoard& board, std::uint64_t seen, std::chrono::milliseconds most) override;

  // Waits until then, or until `ready`, which any thread may be asked for.
  void sleep(TimePoint until, std::function<bool()> ready = {});
  // Of every thread: each time that one goes on.
  void set_on_turn(std::function<void()> on_turn) { on_turn_ = std::move(on_turn); }

 private:
  struct Thread {
    std::thread::id id{};
    TimePoint until{};
    std::function<bool()> ready{};
    const std::condition_variable* waits_for = nullptr;
    bool notified = false;
    bool ended = false;
    bool turn = false;
    std::condition_variable its_turn{};
  };
  bool may_run(const Thread& thread) const;
  Thread& choose();
  void pass_on(std::unique_lock<std::mutex>& lock);
  void wait_for_turn(Thread& thread, std::unique_lock<std::mutex>& lock);

  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
  std::function<void()> on_turn_;
  std::mutex mutex_;
  std::deque<Thread> threads_;  // in the order in which they were started; the ended ones too
  Thread* running_ = nullptr;
};

}  // namespace terrace::legs::test
