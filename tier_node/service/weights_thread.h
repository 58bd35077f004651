// The thread of the weights lanes: it reads and opens pieces of slabs, and hands them to the threads that hash them, so
// that none of it stands before a decode batch, however long a piece takes.
//
// It stands behind whatever else the machine has to do (common/threads/background.h).
#pragma once

#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/threads/background.h"
#include "tier_node/service/peer_loop.h"

namespace terrace::node {

class WeightsThread final : private PeerLoop {
 public:
  // kIo: the process has no descriptor left. Otherwise errors as start_thread().
  static Result<std::unique_ptr<WeightsThread>> start(SlabLoader& loader, const Logger& log,
                                                      const DataServerOptions& options, const Background& background);
  // Says goodbye to its connections, within the grace.
  ~WeightsThread() override;

  // Takes over a connection that has said hello on the weights lane. Not after request_stop(). One other thread.
  void adopt(std::unique_ptr<Peer> peer);
  using PeerLoop::request_stop;
  using PeerLoop::wake;

 private:
  WeightsThread(SlabLoader& loader, const Logger& log, const DataServerOptions& options, int event_fd);
  void on_wake() override { take_adopted(); }
  void on_stop() override { take_adopted(); }  // they get their goodbye like the others
  Status on_hello(Peer& peer, const wire::Frame& frame) override;
  Status on_batch(Peer& peer, const wire::Frame& frame, std::span<const std::byte> bytes) override;
  void on_cancel(Peer&, std::uint64_t) override {}
  void cancel_works(Peer&) override {}
  void take_adopted();

  // Of its own: nothing that it holds is waited for by the thread of decode batches. A welcome alone, sent before the
  // connection came here, goes back to that thread's.
  FramePool frames_;
  std::mutex adopted_mutex_;
  std::vector<std::unique_ptr<Peer>> adopted_;  // guarded
  std::latch ready_{1};                         // it has its name, CPUs and niceness
  std::thread thread_;
};

}  // namespace terrace::node
