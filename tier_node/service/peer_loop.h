// One thread's data connections: it waits for them, reads what they bring, answers what every lane has to answer, ends
// those that break a rule or are too slow, and lets sessions' connections go when their session has ended. Pieces of
// slabs go to the loader and their memory comes back from it. What else a lane carries, and where connections come
// from, is the derived class's.
//
// Threads  Everything belongs to the thread that calls loop(), but for wake(), request_stop() and piece_done().
//          Connections of one session may lie with several threads: they meet in the session alone.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/base/seldom.h"
#include "common/wire/frame.h"
#include "tier_node/service/frame_deadline.h"
#include "tier_node/service/out_frame.h"
#include "tier_node/service/peer.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node {

struct DataServerOptions {
  std::chrono::milliseconds hello_timeout{5'000};  // for connections that say nothing
  FrameTimeLimit frame_time;                       // after hello, for frames that have begun to come
  std::size_t max_strangers = 64;                  // without a session, those that linger too; the oldest makes room
  std::chrono::milliseconds linger{1'000};         // to send the last words to a connection that ends
  std::chrono::milliseconds stop_grace{2'000};     // the same when the server stops
};

class PeerLoop : private PieceOwner {
 public:
  PeerLoop(const PeerLoop&) = delete;
  PeerLoop& operator=(const PeerLoop&) = delete;

  // A session has ended, or something waits for the thread: look. Any thread.
  void wake();

 protected:
  // Of connections that bring much at once one is served in a turn, so many of its events; between two turns those of
  // the latency lane are looked at.
  // event_fd: of make_event_fd(), the loop's from now on.
  PeerLoop(SlabLoader& loader, const Logger& log, const DataServerOptions& options, int event_fd,
           std::size_t events_in_turn);
  ~PeerLoop() override;
  // kIo: the process has no descriptor left.
  static Result<int> make_event_fd();

  // Until a stop was asked for and the last connection has gone.
  void loop();
  // Says goodbye to every connection, within the grace. Any thread.
  void request_stop();

  // ---- for the derived class, by the thread that calls loop()
  // A further descriptor to wait for, -1: none; what is to be done when it is readable, true: there may be more.
  virtual int listening_fd() { return -1; }
  virtual bool on_listening() { return false; }
  virtual TimePoint next_time() const { return TimePoint::max(); }
  // Nothing has come: whether to look again at once instead of sleeping until something does.
  virtual bool stays_awake() { return false; }
  // After wake().
  virtual void on_wake() {}
  // Every connection had its turn. True: there is more to do at once.
  virtual bool end_turn() { return false; }
  virtual void on_stop() {}
  // Of a connection that has not said hello.
  virtual Status on_hello(Peer& peer, const wire::Frame& frame) = 0;
  // A batch: releases `bytes`, or hands them on, unless it returns an error.
  virtual Status on_batch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) = 0;
  virtual void on_cancel(Peer& peer, std::uint64_t sequence) = 0;
  // Nobody waits for what this connection asked for.
  virtual void cancel_works(Peer& peer) = 0;
  virtual void after_poll(Peer& peer) { (void)peer; }

  static TimePoint now() { return std::chrono::steady_clock::now(); }
  const Logger& log() const { return log_; }
  const DataServerOptions& options() const { return options_; }
  std::vector<std::unique_ptr<Peer>>& peers() { return peers_; }
  Peer* find(std::uint64_t id);
  bool stopping() const { return stopping_; }
  // Has it a turn; true: there may be more events.
  bool serve(Peer& peer);
  void end_peer(Peer& peer, const Error* why);

 private:
  // A frame that the loader is done with.
  struct Returned {
    std::uint64_t peer = 0;
    std::span<const std::byte> frame;
  };
  // What the wait found, of what it waited for.
  struct Ready {
    bool listener = false;
    bool event = false;  // wake()
  };

  Ready wait(bool more_to_do);
  bool wait_for_any(bool more_to_do);
  int next_timeout_ms() const;
  void begin_stop();
  bool serve_some();
  static bool is_first(const Peer& peer);
  static bool has_something(Peer& peer);
  std::size_t most_events(const Peer& peer) const;
  void check_deadline(Peer& peer);
  void follow_session(Peer& peer);
  // Of a session's connection each; of strangers', who can come as often as they like, one now and then.
  void log_end(const Peer& peer, const Error& why);
  void fail(Peer& peer, const Error& error);
  void on_closed(Peer& peer);
  void end_wait_for_slabs(const Peer& peer, const Error& why);
  void end_if_abandoned(const Peer& peer, bool goodbye);

  void on_frame(Peer& peer, std::span<const std::byte> bytes);
  Status dispatch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes);
  Status on_error(Peer& peer, const wire::Frame& frame);
  Status on_slab(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes);
  void piece_done(std::uint64_t peer, std::span<const std::byte> frame) override;
  void take_returned();

  SlabLoader& loader_;
  const Logger log_;
  const DataServerOptions options_;
  const std::size_t events_in_turn_;
  const int event_fd_;
  std::atomic<bool> stop_requested_ = false;

  std::vector<std::unique_ptr<Peer>> peers_;
  std::uint64_t last_served_ = 0;  // of those that take turns
  bool stopping_ = false;
  Seldom strangers_;
  Seldom told_errors_;  // that end nothing
  std::vector<pollfd> poll_fds_;
  std::vector<Returned> handled_returns_;

  std::mutex returns_mutex_;  // guards the next one, which is bounded by the credit of the weights lanes
  std::vector<Returned> returns_;
};

}  // namespace terrace::node
