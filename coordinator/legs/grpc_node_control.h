// NodeControl over gRPC (proto/terrace/v1/node.proto). Without credentials links beyond loopback are refused before
// anything is sent; with credentials every link is mutual TLS, on loopback too.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/credentials.h"
#include "coordinator/legs/node_control.h"

namespace terrace::legs {

struct ControlTimeouts {
  std::chrono::milliseconds call{10'000};  // of a call that answers at once, connecting included
  // Heartbeat, CloseSession, Forget, and acknowledge() and give_back(): nobody waits long for these.
  std::chrono::milliseconds brief{2'000};
  std::chrono::milliseconds progress{60'000};  // Assign: between two messages (a node reads and hashes slabs meanwhile)
};

// Checks the address and makes the channel; connects with the first call. kInvalidArgument: not HOST:PORT.
// kRefused: no credentials, and the host is not a loopback address. Of the calls: kRefused also where one end does not
// take the other's certificate.
Result<std::unique_ptr<NodeControl>> make_grpc_node_control(const std::string& address, const ControlTimeouts& timeouts,
                                                            std::shared_ptr<security::Credentials> credentials = {});

}  // namespace terrace::legs
