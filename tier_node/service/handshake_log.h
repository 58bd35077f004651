// Why the control port refused a client's handshake, in the node's log: the client itself is only told that the socket
// was closed, and the one who copied the wrong secret looks here.
#pragma once

#include <memory>
#include <string>

#include "common/base/log.h"

namespace terrace::node {

// While it lives gRPC's log is read for failed handshakes, and each is told by `log`, a few a minute. gRPC has one log
// for a process and names no connection, so where several of these live at once each tells of all. Everything else that
// gRPC logs is dropped: a page of file names beside the one sentence that we say.
class HandshakeLog {
 public:
  // `where`: what the lines begin with, the address that is listened on.
  HandshakeLog(Logger log, std::string where);
  ~HandshakeLog();
  HandshakeLog(const HandshakeLog&) = delete;
  HandshakeLog& operator=(const HandshakeLog&) = delete;

  // From now on this process's gRPC says nothing itself. Before a server or a channel is made.
  static void take_over();

 private:
  friend struct HandshakeLogs;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace terrace::node
