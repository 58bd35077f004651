// Takes a new connection in a lane's place when the old one is near its end (Connection::near_its_end()): says goodbye
// on the old one, waits for the node's, so that it holds no more of the lane there, and opens the next one. A session
// goes on meanwhile over its other lanes; nobody waits here but a thread of this class.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/event_fd.h"
#include "coordinator/legs/lane.h"

namespace terrace::legs {

// The owner's thread, but for what run() does.
class LaneRenewal {
 public:
  // Nothing is open on `old`: no frame of either side is unsent, unanswered or held. `goodbye` is the header of the
  // close frame. `transport` outlives the renewal. kIo: the process has no descriptor left. Otherwise
  // errors as start_thread().
  static Result<std::unique_ptr<LaneRenewal>> start(std::unique_ptr<transport::Connection> old,
                                                    const wire::FrameHeader& goodbye, transport::Transport& transport,
                                                    const LaneOptions& options);
  // Gives it up. Waits for the thread, which looks several times a second, or for a connection that is being made.
  ~LaneRenewal();
  LaneRenewal(const LaneRenewal&) = delete;
  LaneRenewal& operator=(const LaneRenewal&) = delete;

  int wait_fd() const { return done_.fd(); }  // POLLIN once take() gives something
  // The opened lane, or why there is none; nothing until then. Once.
  std::optional<Result<std::unique_ptr<Lane>>> take();

 private:
  LaneRenewal(std::unique_ptr<transport::Connection> old, const wire::FrameHeader& goodbye,
              transport::Transport& transport, const LaneOptions& options, transport::EventFd done);
  void run();
  void part_from_node(const std::stop_token& stop);

  std::unique_ptr<transport::Connection> old_;
  const wire::FrameHeader goodbye_;
  transport::Transport& transport_;
  LaneOptions options_;
  transport::EventFd done_;
  std::optional<Result<std::unique_ptr<Lane>>> result_;  // the thread's until done_
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace terrace::legs
