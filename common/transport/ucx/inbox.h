// Frames that have come for one connection, put in order, and the credit that the peer has for more of them. Only for
// common/transport/ucx.
//
// Bounds   The peer was told the window: frames beyond it, or more than kFramesAhead of the next one, end the
//          connection. So does a number that has been there.
// Threads  One at a time. Memory: kept, no allocation after warm-up.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/receive_pool.h"
#include "common/transport/ucx/messages.h"
#include "common/transport/ucx/worker.h"

namespace terrace::transport {

class Inbox {
 public:
  explicit Inbox(const Options& options)
      : largest_frame_(options.largest_frame), window_(options.receive_window), pool_(options.receive_window) {}
  Inbox(Inbox&&) = delete;  // UCX knows its slots

  // From the handler of the message.
  ucs_status_t on_frame(const Channel::Message& message);
  // Fetches what has been announced; outside of handlers.
  void fetch(ucp_worker_h worker);
  bool has_to_fetch() const { return !failure_ && announced_ > 0; }
  // Drops what has been announced and is not being fetched: the connection ends.
  void drop_announced(ucp_worker_h worker);
  // UCX may still write into its memory.
  bool is_fetching() const { return fetching_ > 0; }

  // The next frame in order.
  std::optional<std::span<const std::byte>> next();
  bool has_next() const { return slot(taken_).state == State::kReady; }
  void release(std::span<const std::byte> frame);
  void set_largest_frame(std::uint64_t bytes) { largest_frame_ = std::min(bytes, window_); }
  // Why the connection has to end, once the frames before are taken.
  const std::optional<Error>& failure() const { return failure_; }

  // The next frame has begun to come, or one behind it has come whole.
  bool is_unfinished() const { return !failure_ && !has_next() && come_ > taken_; }
  // Of the next frame; 0: not known.
  std::uint64_t length_of_unfinished() const { return slot(taken_).frame.size(); }

  // Of frames that came with their message, and not by being fetched to their place.
  std::uint64_t bytes_copied() const { return copied_; }

  std::uint64_t window() const { return window_; }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t released() const { return released_; }
  // The peer has been told both; owes_credit(): it may wait for what it was not told.
  void told_credit() { told_taken_ = taken_, told_released_ = released_; }
  bool owes_credit() const;

 private:
  enum class State : std::uint8_t { kEmpty, kAnnounced, kFetching, kReady };
  struct Slot {
    Inbox* inbox = nullptr;
    State state = State::kEmpty;
    void* data = nullptr;  // kAnnounced: what stands for the bytes
    std::span<std::byte> frame;
  };
  Slot& slot(std::uint64_t number) { return slots_[number % kFramesAhead]; }
  const Slot& slot(std::uint64_t number) const { return slots_[number % kFramesAhead]; }
  ucs_status_t fail(Error error);
  void fetch(ucp_worker_h worker, Slot& slot);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* slot);
  void finish_fetch(Slot& slot, ucs_status_t status);

  std::uint64_t largest_frame_;
  const std::uint64_t window_;
  ReceivePool pool_;
  std::array<Slot, kFramesAhead> slots_;  // by number modulo their number
  std::uint64_t come_ = 0;                // one behind the highest number that has come
  std::uint64_t taken_ = 0;               // frames
  std::uint64_t received_ = 0;            // bytes
  std::uint64_t copied_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t told_taken_ = 0;
  std::uint64_t told_released_ = 0;
  std::size_t announced_ = 0;  // slots
  std::size_t fetching_ = 0;
  std::optional<Error> failure_;
};

}  // namespace terrace::transport
