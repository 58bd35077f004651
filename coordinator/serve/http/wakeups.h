// How other threads call the server's: which connections have something to collect, and one wake-up for all of them.
//
// Threads  Any, but for what says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace terrace::serve::http {

class Connection;

class Wakeups {
 public:
  // call_soon: has the server's thread call take(). Called without a lock held, and again only after take().
  explicit Wakeups(std::function<void()> call_soon) : call_soon_(std::move(call_soon)) {}

  void wake(std::weak_ptr<Connection> connection);
  // In between call_soon waits for the end. Batches of several threads may overlap.
  void begin_batch();
  void end_batch();

  // The server's thread: who was woken since the last call; valid until the next. In order, some perhaps twice.
  std::span<const std::weak_ptr<Connection>> take();

 private:
  // Unlocks.
  void call_if_due(std::unique_lock<std::mutex>& lock);

  const std::function<void()> call_soon_;
  std::vector<std::weak_ptr<Connection>> taken_;  // the server's thread's

  std::mutex mutex_;  // guards what follows
  std::vector<std::weak_ptr<Connection>> woken_;
  std::uint32_t n_batches_ = 0;
  bool called_ = false;  // take() will come
};

}  // namespace terrace::serve::http
