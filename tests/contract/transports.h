// The transports that the contract holds for, alone and behind the decorators.
#pragma once

#include <memory>
#include <ostream>

#include "common/transport/faulty/faulty.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/recording/recorder.h"
#include "common/transport/tcp/tcp.h"

namespace terrace::transport::test {

using namespace std::chrono_literals;

struct TransportCase {
  const char* name;
  std::unique_ptr<Transport> (*make)();
  bool streams;  // carries bytes: a frame may come in pieces
};

inline void PrintTo(const TransportCase& transport, std::ostream* out) { *out << transport.name; }

template <class Inner>
std::unique_ptr<Transport> make() {
  return std::make_unique<Inner>();
}
// Both ends wrapped, no fault planted.
template <class Inner>
std::unique_ptr<Transport> make_faulty() {
  return std::make_unique<FaultyTransport>(std::make_shared<Inner>(), FaultScript());
}
// Every frame is held for a while before it is delivered: all clauses hold for a link that is slow, too.
template <class Inner>
std::unique_ptr<Transport> make_slow() {
  FaultScript script;
  script.delay = {0us, 30us};
  script.jitter = {0us, 10us};
  return std::make_unique<FaultyTransport>(std::make_shared<Inner>(), script);
}
template <class Inner>
std::unique_ptr<Transport> make_recording() {
  return std::make_unique<RecordingTransport>(std::make_shared<Inner>(), Recorder::create("/dev/null").value());
}

inline const TransportCase kTransports[] = {
    {"loopback", make<LoopbackTransport>, false},
    {"tcp", make<TcpTransport>, true},
    {"faulty_loopback", make_faulty<LoopbackTransport>, false},
    {"faulty_tcp", make_faulty<TcpTransport>, true},
    {"recording_tcp", make_recording<TcpTransport>, true},
    {"slow_loopback", make_slow<LoopbackTransport>, false},
    {"slow_tcp", make_slow<TcpTransport>, true},
};

}  // namespace terrace::transport::test
