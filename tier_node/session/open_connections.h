// Which data connections a session has open: each is one socket of one lane, and there is one of each at the most.
//
// Threads  Any, without a lock: the connections of a session lie with several threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/wire/frame.h"
#include "common/wire/messages.h"

namespace terrace::node {

class OpenConnections {
 public:
  // False: it is open already, and stays the other's.
  bool enter(wire::Lane lane, std::uint32_t socket_index) {
    const std::uint32_t bit = bit_of(lane, socket_index);
    return (open_.fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
  }
  void leave(wire::Lane lane, std::uint32_t socket_index) {
    open_.fetch_and(~bit_of(lane, socket_index), std::memory_order_acq_rel);
  }
  // Of several that leave at once, who asks last is told that none is left.
  bool any() const { return open_.load(std::memory_order_acquire) != 0; }

 private:
  // socket_index is less than kMostSockets: SessionLimits::sockets() was asked.
  static std::uint32_t bit_of(wire::Lane lane, std::uint32_t socket_index) {
    return 1u << (static_cast<std::uint32_t>(lane) * wire::kMostSockets + socket_index);
  }
  std::atomic<std::uint32_t> open_ = 0;
};

}  // namespace terrace::node
