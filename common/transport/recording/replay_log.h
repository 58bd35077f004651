// A recording sorted by connection, and what the live end has sent so far. Only for common/transport/recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/transport/recording/recording.h"
#include "common/transport/recording/replay.h"
#include "common/wire/frame.h"

namespace terrace::transport {

// Which of the recorded frames are played: the recording end's own, or those of its peer.
enum class PlayedEnd : std::uint8_t { kRecorder, kPeer };

struct PlayedFrame {
  wire::Frame frame;
  std::size_t live_before = 0;  // compared frames of the live end on this connection that came before it
};

// One recorded connection with one end played.
struct ConnectionScript {
  std::vector<PlayedFrame> played;
  std::vector<wire::Frame> live;  // compared frames of the other end, in their order
};

// Whether frames of this type are compared. They are played, and so is credit; pings and goodbyes are the live end's
// affair.
bool is_substance(wire::FrameType type);

class ReplayLog {
 public:
  // kCorrupt: an entry is no frame; names it.
  static Result<std::shared_ptr<ReplayLog>> create(Recording recording, const ReplayIdentity& identity);

  const ReplayIdentity& identity() const { return identity_; }
  std::uint32_t n_connections() const { return recording_.n_connections(); }
  ConnectionScript script(std::uint32_t connection, PlayedEnd played) const;

  // The live end sent `frame` as the counterpart of `recorded` (null: the recording has none).
  void compare(std::uint32_t connection, const wire::Frame& frame, const wire::Frame* recorded);
  // All of the live end's frames on one connection have come.
  void connection_done();
  bool finished() const;
  std::vector<std::string> differences() const;
  std::size_t compared() const;

 private:
  ReplayLog(Recording recording, const ReplayIdentity& identity)
      : recording_(std::move(recording)), identity_(identity) {}

  const Recording recording_;
  const ReplayIdentity identity_;
  std::vector<wire::Frame> frames_;  // [entries], of those that have one

  mutable std::mutex mutex_;  // guards all below
  std::vector<std::string> differences_;
  std::size_t compared_ = 0;
  std::uint32_t n_done_ = 0;
};

}  // namespace terrace::transport
