// Options of data connections that both programs have.
#pragma once

#include <cstdint>

#include "common/base/options.h"
#include "common/base/result.h"
#include "common/threads/waiting.h"

namespace terrace::transport {

// More than so long, and waiting by the system's own means has cost less (docs/adr/0011).
inline constexpr std::uint32_t kMostBusyPollUs = 50;

// --busy-poll: Options::busy_poll of the connections that carry decode batches, in microseconds.
void add_busy_poll_option(OptionTable& table, std::uint32_t* us);
// kInvalidArgument: it is asked for, and no core is free for it.
Status check_busy_poll(std::uint32_t us, Waiting waiting);

}  // namespace terrace::transport
