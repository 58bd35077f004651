// Frames over TCP: one socket a connection, NODELAY, header and payload in one gather write of at most 16 pieces, large
// payloads read straight into the buffer that the caller sees. Sealing and authentication are not done here.
//
// Addresses  "127.0.0.1:9001", "[::1]:9001", "box1:9001". A name is looked up by the system's resolver, which keeps its
//            own time; the connect timeout covers what follows, over all of the name's addresses together.
// Threads    The transport may be used from any thread; listeners and connections as connection.h says. They may
//            outlive the transport.
#pragma once

#include <memory>
#include <string>

#include "common/transport/connection.h"

namespace terrace::transport {

class TcpTransport final : public Transport {
 public:
  TcpTransport();
  ~TcpTransport() override;
  // SO_REUSEADDR is set: a port is free again at once after its listener has ended. Port 0 takes a free one.
  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return "tcp"; }

 private:
  struct Context;
  std::shared_ptr<Context> context_;
};

}  // namespace terrace::transport
