// Connections inside one process: what every other transport is compared with.
//
// A frame is copied once, from the sender's gather list into one buffer of the receiver: the receiver's view must be
// contiguous and the sender's parts must be the sender's again. The sending thread does it, in send() when the
// receiver's window has room, else in a later poll(). No sockets: each connection has an eventfd for wait_fd().
//
// An object of LoopbackTransport is a network of its own: an address listened on in one is unknown in another.
// Addresses look like those of tcp; the host is any name, port 0 takes a free one.
//
// Threads  The transport may be used from any thread; listeners and connections as connection.h says. They may outlive
//          the transport.
#pragma once

#include <memory>
#include <string>

#include "common/transport/connection.h"

namespace terrace::transport {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport();
  ~LoopbackTransport() override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  // Succeeds or fails at once.
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return "loopback"; }

 private:
  struct Network;
  std::shared_ptr<Network> network_;
};

}  // namespace terrace::transport
