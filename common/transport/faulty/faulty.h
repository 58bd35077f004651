// Plants faults into the frames of any transport: cuts, delays, wrong bits, missing ends, lost frames, silence, missing
// credit (fault_script.h). For tests and simulations; no shipped program links it.
//
// Both ends of a link may be wrapped or one alone: a wrapped end judges what it sends and what it receives. Without a
// fault it passes every clause of tests/contract/transport_contract_test.cpp.
//
// Delays   Frames are held until they are due; poll() passes them on, in order, and wait_fd() wakes the owner when the
//          next one is due. An outgoing frame that is held thus needs its sender's poll(): where both ends are wrapped,
//          delay what comes in. Held frames count against the inner receive window. With a FaultClock that a simulation
//          moves, poll() after moving it; a waiter wakes no earlier than after as much real time.
// Threads  As the inner transport. A cut everywhere reaches connections of other threads at their next call.
#pragma once

#include <memory>
#include <string>

#include "common/transport/connection.h"
#include "common/transport/faulty/fault_script.h"

namespace terrace::transport {

class FaultyTransport final : public Transport {
 public:
  // `clock` is borrowed and outlives every connection; null: the steady clock.
  FaultyTransport(std::shared_ptr<Transport> inner, FaultScript script, const FaultClock* clock = nullptr);

  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return "faulty"; }

  std::uint64_t fired() const { return state_->fired(); }
  std::uint64_t frames() const { return state_->frames(); }

 private:
  std::shared_ptr<Transport> inner_;
  std::shared_ptr<FaultState> state_;
  const FaultClock* clock_;
};

}  // namespace terrace::transport
