// Plays one end of a recorded link against the other end, live: a recorded coordinator to a real node, or a recorded
// node to a real coordinator, and compares what the live end sends with what was recorded then.
//
// The recording was made by a coordinator (its connections are those it made). A session is never the same twice: the
// played frames carry today's session, and in the comparison session, credit, flags and the time that a reply took do
// not count; neither do pings, pongs, credit and close frames. Played frames go out when everything of the live
// end that had come before them has come again, and when there is credit for them; a reply, once its batch has come.
//
// Threads  The replay may be asked from any thread; its connections as connection.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/connection.h"
#include "common/transport/recording/recording.h"

namespace terrace::transport {

// The session that the live end takes part in. There is no handshake: a played connection belongs to it, it says.
struct ReplayIdentity {
  std::uint64_t session = 0;
};

class ReplayLog;
class ReplayBacklog;

// As a coordinator's transport: the n-th connect() gives the n-th recorded connection with the recorded node behind it.
// As a node's: after play() the recorded coordinator connects to what listen() gave.
class Replay final : public Transport {
 public:
  // kCorrupt: a recorded frame is none (the recording of a fault), which cannot be played.
  static Result<std::unique_ptr<Replay>> create(Recording recording, const ReplayIdentity& identity);
  ~Replay() override;

  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return "replay"; }

  // The recorded coordinator connects, all its connections at once.
  void play();
  // Every recorded frame of the live end has come.
  bool finished() const;
  // How the live end differs from the recording, as sentences; bounded. Empty and finished(): not at all.
  std::vector<std::string> differences() const;
  // Frames of the live end that were compared.
  std::size_t compared() const;

 private:
  explicit Replay(std::shared_ptr<ReplayLog> log);

  std::shared_ptr<ReplayLog> log_;
  std::shared_ptr<ReplayBacklog> backlog_;
};

}  // namespace terrace::transport
