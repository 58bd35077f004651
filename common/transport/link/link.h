// Which transport carries the data connections between machines, as people choose it: the flags of both programs, and
// the transport that they ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/result.h"
#include "common/threads/waiting.h"
#include "common/transport/connection.h"

namespace terrace::transport {

enum class LinkKind { kTcp, kUcx };
const char* name(LinkKind kind);  // "tcp", "ucx": as --link has it

// More than so long, and waiting by the system's own means has cost less (docs/adr/0011).
inline constexpr std::uint32_t kMostBusyPollUs = 50;

struct LinkOptions {
  LinkKind link = LinkKind::kTcp;
  std::uint32_t busy_poll = 0;  // Options::busy_poll of connections that carry decode batches, us; for tcp alone
  // The rest is for ucx alone.
  std::string interface;
  std::string trusted_net;  // CIDR; empty: loopback alone
  std::string ucx_ports = "9200-9455";
  std::string ucx_rdma;  // "mlx5_0:1"; empty: TCP only
};

// Declares --link and what belongs to it.
void add_link_options(OptionTable& table, LinkOptions* options);

// What the options say together. kInvalidArgument: ucx without an interface, what is for one link beside the other, a
// network or ports that are none. kUnsupported: ucx, and a build without it.
Status check(const LinkOptions& options);

// What was chosen, for people: "tcp", "tcp, busy poll 20 us", "ucx on eth1, ports 9200-9455, TCP only,
// trusts 10.0.0.0/24".
std::string describe(const LinkOptions& options);

// kInvalidArgument: --busy-poll is asked for, and no core is free for it.
Status check_busy_poll(const LinkOptions& options, Waiting waiting);

// First in main(): UCX takes signals when it is loaded, whatever link is chosen.
void return_signals();

// What the chosen link's library reads from the environment of the process; options that check() has passed. Before any
// thread is started. `address`: one that will be listened at or connected to, for its family.
void prepare_link(const LinkOptions& options, std::string_view address);

// kInvalidArgument, kUnsupported, kIo: as UcxTransport::create().
Result<std::shared_ptr<Transport>> make_transport(const LinkOptions& options, const Logger& log);

}  // namespace terrace::transport
