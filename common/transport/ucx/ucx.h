// Frames over UCX: active messages of UCP, host memory only. It is there for RDMA; over TCP it is no faster than
// common/transport/tcp. Never chosen automatically: docs/security.md says what its wire layer does to hostile bytes.
//
// Setting up  A connection begins as one of tcp: each end says in one frame where its UCX worker is reached
//             (docs/wire.md 14), then that connection ends. It goes on in poll(), until it is done send() queues.
// Workers     One per listener, shared with the connections that it accepted; one per connection of connect(). Each
//             has one listening socket of UCX's own, on the interface, within the ports of the options.
// Threads     The transport may be used from any thread. A listener and the connections that it accepted belong to one
//             owner thread at a time together, each connection of connect() to one. All may outlive the transport.
//             UCX has a thread of its own that accepts at its ports.
// Death       UCX tells of a peer that was killed, not of one that has stopped or whose link is down: liveness is the
//             owner's (ping).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/ucx/network.h"

namespace terrace::transport {

struct UcxOptions {
  std::string interface;               // the network interface that UCX uses, and no other
  std::optional<Network> trusted_net;  // whom to talk to; none: loopback alone
  UcxPorts ports;
  std::string rdma_device;  // "mlx5_0:1"; empty: TCP only
  bool ipv6 = false;        // UCX's own connections
};

// That the interface is there, with an address to be used. kInvalidArgument: it is not; it is not loopback, and no
// network is trusted; none of its addresses lies in the trusted network.
Status check_ucx_place(const UcxOptions& options);

// Whether this build has UCX. Without it create() answers kUnsupported, and the two functions do nothing.
bool ucx_is_built();
// UCX catches SIGSEGV, SIGBUS, SIGILL and SIGFPE as soon as it is loaded: gives them back. First in main().
void ucx_return_signals();
// Settings that UCX takes from the environment alone. Before any thread is started, once in a process.
void ucx_prepare_environment(const UcxOptions& options);

class UcxTransport final : public Transport {
 public:
  // kInvalidArgument: check_ucx_place(). kUnsupported: a build without UCX. kIo: UCX refuses. What UCX has to say goes
  // to the log of the first transport of a process: it keeps one for all.
  static Result<std::unique_ptr<UcxTransport>> create(const UcxOptions& options, const Logger& log);
  ~UcxTransport() override;

  // kRefused: the address is neither loopback nor in the trusted network; so also of connect(). Peers of other
  // addresses are hung up on.
  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return "ucx"; }

 private:
  struct Parts;
  explicit UcxTransport(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace::transport
