#include "common/transport/link_options.h"

#include <fmt/format.h>

namespace terrace::transport {

void add_busy_poll_option(OptionTable& table, std::uint32_t* us) {
  table
      .add("busy-poll", us,
           "microseconds for which the system looks at the network card itself while a reply is waited for; needs "
           "CAP_NET_ADMIN and a core to spare")
      .range(0, kMostBusyPollUs)
      .value_name("US")
      .default_text("0: never");
}

Status check_busy_poll(std::uint32_t us, Waiting waiting) {
  if (us == 0 || waiting != Waiting::kBlock) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--busy-poll {}: no core is free here, so waits block; whoever looks at the card would keep "
                           "the other end from answering: leave it out",
                           us));
}

}  // namespace terrace::transport
