// The control port as the node listens on it itself: gRPC's own listener (1.51) never accepts again once an accept has
// failed, as it does while the process has no descriptor left, and takes connections without limit.
//
// Threads  One of its own accepts, and hands over what it accepted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/base/result.h"

namespace terrace::node {

class ControlListener {
 public:
  // Takes a connected socket over, and closes it when the connection ends. Called by the listener's thread.
  using Handler = std::function<void(int fd)>;

  // Listens on `address`, a numeric HOST:PORT; port 0: the system's choice. At most `max_connections` (at least
  // 1) of those that were handed over are open at one time; for a further one that is closed from which fewest bytes
  // have come, so that the mute and the slow make room for others. That, and that there is no descriptor left, is
  // logged once a minute. kIo: the address cannot be bound, or no thread or descriptor is left; names the address.
  static Result<std::unique_ptr<ControlListener>> start(const std::string& address, std::uint32_t max_connections,
                                                        Handler on_connection, const Logger& log);
  // Stops listening; the handler is not called any more.
  virtual ~ControlListener() = default;

  virtual std::uint16_t port() const = 0;

 protected:
  ControlListener() = default;
  ControlListener(const ControlListener&) = delete;
  ControlListener& operator=(const ControlListener&) = delete;
};

}  // namespace terrace::node
