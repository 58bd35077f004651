#include "common/transport/link/link.h"

#include <fmt/format.h>

#include "common/transport/tcp/tcp.h"
#include "common/transport/ucx/ucx.h"

namespace terrace::transport {
namespace {

Error invalid(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

// kInvalidArgument: a network or ports that are none.
Result<UcxOptions> ucx_options(const LinkOptions& options) {
  UcxOptions ucx;
  ucx.interface = options.interface;
  ucx.rdma_device = options.ucx_rdma;
  auto ports = parse_ucx_ports(options.ucx_ports);
  if (!ports.ok()) return ports.error().in("--ucx-ports");
  ucx.ports = *ports;
  if (options.trusted_net.empty()) return ucx;
  auto network = Network::parse(options.trusted_net);
  if (!network.ok()) return network.error().in("--trusted-net");
  ucx.trusted_net = *network;
  return ucx;
}

Status check_tcp(const LinkOptions& options) {
  const char* const given = !options.interface.empty()                     ? "--interface"
                            : !options.trusted_net.empty()                 ? "--trusted-net"
                            : !options.ucx_rdma.empty()                    ? "--ucx-rdma"
                            : options.ucx_ports != LinkOptions().ucx_ports ? "--ucx-ports"
                                                                           : nullptr;
  if (given == nullptr) return {};
  return invalid(fmt::format("{} is for --link ucx, and the link is tcp; give both or neither", given));
}

}  // namespace

const char* name(LinkKind kind) { return kind == LinkKind::kTcp ? "tcp" : "ucx"; }

void add_link_options(OptionTable& table, LinkOptions* options) {
  table.add_choice("link", &options->link,
                   {{name(LinkKind::kTcp), LinkKind::kTcp}, {name(LinkKind::kUcx), LinkKind::kUcx}},
                   "what carries data between machines; the same at both ends; ucx is for trusted networks alone");
  table
      .add("busy-poll", &options->busy_poll,
           "microseconds for which the system looks at the network card itself while a reply is waited for; no more "
           "than net.core.busy_read says, and with a core to spare")
      .range(0, kMostBusyPollUs)
      .value_name("US")
      .default_text("0: never");
  table.add("interface", &options->interface, "the network interface of --link ucx, and no other: lo, eth1")
      .value_name("NAME")
      .default_text("none; --link ucx needs one");
  table.add("trusted-net", &options->trusted_net, "where --link ucx may be used beyond loopback, by everybody in it")
      .value_name("CIDR")
      .default_text("none; loopback alone");
  table.add("ucx-ports", &options->ucx_ports, "ports at which UCX listens, one for each worker of a process")
      .value_name("FIRST-LAST");
  table.add("ucx-rdma", &options->ucx_rdma, "a device for --link ucx beside TCP: mlx5_0:1")
      .value_name("DEVICE")
      .default_text("none; TCP only");
}

Status check(const LinkOptions& options) {
  if (options.link == LinkKind::kTcp) return check_tcp(options);
  if (!ucx_is_built())
    return Error(ErrorCode::kUnsupported,
                 "--link ucx: this build has no UCX; install its development files (Debian: libucx-dev) and build "
                 "again, or leave out --link");
  if (options.busy_poll != 0)
    return invalid("--busy-poll is for --link tcp; ucx looks at its devices itself while a reply is waited for");
  if (options.interface.empty())
    return invalid(
        "--link ucx needs --interface NAME: UCX opens ports of its own there, which let in whoever reaches them; "
        "lo for this machine alone");
  if (options.interface.find(',') != std::string::npos || options.ucx_rdma.find(',') != std::string::npos)
    return invalid("--link ucx uses one interface, and one device of --ucx-rdma: leave out the comma");
  const auto ucx = ucx_options(options);
  return ucx.ok() ? check_ucx_place(*ucx) : ucx.error();
}

std::string describe(const LinkOptions& options) {
  if (options.link == LinkKind::kTcp)
    return options.busy_poll == 0 ? "tcp" : fmt::format("tcp, busy poll {} us", options.busy_poll);
  return fmt::format("ucx on {}, ports {}, {}, trusts {}", options.interface, options.ucx_ports,
                     options.ucx_rdma.empty() ? "TCP only" : "TCP and " + options.ucx_rdma,
                     options.trusted_net.empty() ? "loopback alone" : options.trusted_net);
}

Status check_busy_poll(const LinkOptions& options, Waiting waiting) {
  if (options.busy_poll == 0 || waiting != Waiting::kBlock) return {};
  return invalid(fmt::format(
      "--busy-poll {}: no core is free here, so waits block; whoever looks at the card would keep the other "
      "end from answering: leave it out",
      options.busy_poll));
}

void return_signals() { ucx_return_signals(); }

void prepare_link(const LinkOptions& options, std::string_view address) {
  if (options.link != LinkKind::kUcx) return;
  auto ucx = ucx_options(options);
  TERRACE_CHECK(ucx.ok(), "options that check() has passed");
  ucx->ipv6 = ucx->trusted_net ? ucx->trusted_net->is_ipv6() : address.find('[') != std::string_view::npos;
  ucx_prepare_environment(*ucx);
}

Result<std::shared_ptr<Transport>> make_transport(const LinkOptions& options, const Logger& log) {
  if (options.link == LinkKind::kTcp) return std::shared_ptr<Transport>(std::make_shared<TcpTransport>());
  TERRACE_ASSIGN_OR_RETURN(const UcxOptions ucx, ucx_options(options));
  TERRACE_ASSIGN_OR_RETURN(std::shared_ptr<Transport> transport, UcxTransport::create(ucx, log));
  return transport;
}

}  // namespace terrace::transport
