// What the two ends of a loopback connection share: for each end, the frames that have come for it. Only for
// common/transport/loopback.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/transport/connection.h"
#include "common/transport/event_fd.h"
#include "common/transport/receive_pool.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

// One end as the other end sees it. Both threads use it; every function locks.
class Endpoint {
 public:
  Endpoint(EventFd event, const Options& options)
      : event_(std::move(event)), options_(options), pool_(options.receive_window) {}

  // ---- called by the other end
  enum class Delivery { kDelivered, kNoRoom, kGone };
  // Copies a frame of `bytes` in. kNoRoom: the window is full; `sender` is woken when there is room. kGone: this end
  // has closed, or cannot take this frame (too long, no frame at all) and will close.
  Delivery deliver(std::span<const Part> parts, std::uint64_t bytes);
  void wake();

  // ---- called by this end
  int fd() const { return event_.fd(); }
  void clear_event();
  void set_largest_frame(std::uint64_t bytes);
  // The next frame; until release() it counts against the window.
  std::optional<std::span<const std::byte>> next_frame();
  bool has_frame() const;
  // True: the other end waits for room and is to be woken.
  bool release(std::span<const std::byte> frame);
  // Why this end must close, once a frame that it cannot take has come.
  std::optional<Error> failure() const;
  void leave();

  // ---- either
  bool gone() const;

 private:
  mutable std::mutex mutex_;
  EventFd event_;
  Options options_;
  ReceivePool pool_;
  std::vector<std::span<const std::byte>> frames_;  // came and not taken: [next_frame_, size)
  std::size_t next_frame_ = 0;
  bool sender_waits_ = false;
  bool gone_ = false;
  std::optional<Error> failure_;
};

}  // namespace terrace::transport
