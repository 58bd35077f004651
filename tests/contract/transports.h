// The transports that the contract holds for, alone and behind the decorators.
#pragma once

#include <memory>
#include <ostream>
#include <vector>

#include "common/transport/faulty/faulty.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/recording/recorder.h"
#include "common/transport/tcp/tcp.h"
#include "tests/contract/sealed_transport.h"
#include "tests/contract/transport_harness.h"
#include "tests/contract/ucx_on_loopback.h"

namespace terrace::transport::test {

using namespace std::chrono_literals;

struct TransportCase {
  const char* name;
  std::unique_ptr<Transport> (*make)();
  bool streams;  // carries bytes: what send() takes may be a piece of a frame
  // A connection begins with a handshake of so many bytes and frames from the client, and from the server.
  struct Handshake {
    std::uint64_t bytes[2] = {0, 0};
    std::uint64_t frames[2] = {0, 0};
  };
  Handshake handshake = {};
  std::uint64_t seal_bytes = 0;  // that a frame is longer on the link
  bool settles = false;          // a fresh connection sets itself up in poll()
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

// Both ends wrapped as in production: what is under the seal knows nothing of it.
template <class Inner, security::Cipher cipher>
std::unique_ptr<Transport> make_keyed() {
  return std::make_unique<KeyedTransport>(std::make_shared<Inner>(), test_link(cipher));
}
template <class Inner>
std::unique_ptr<Transport> make_sealed_faulty() {
  return std::make_unique<KeyedTransport>(std::shared_ptr<Transport>(make_faulty<Inner>()),
                                          test_link(security::Cipher::kAes256Gcm));
}
template <class Inner>
std::unique_ptr<Transport> make_recording_sealed() {
  return std::make_unique<RecordingTransport>(
      std::shared_ptr<Transport>(make_keyed<Inner, security::Cipher::kChaCha20Poly1305>()),
      Recorder::create("/dev/null").value());
}
inline constexpr TransportCase::Handshake kHandshake{{144, 96 + 112}, {1, 2}};

inline const std::vector<TransportCase> kTransports = [] {
  std::vector<TransportCase> all{
      {"loopback", make<LoopbackTransport>, false},
      {"tcp", make<TcpTransport>, true},
      {"faulty_loopback", make_faulty<LoopbackTransport>, false},
      {"faulty_tcp", make_faulty<TcpTransport>, true},
      {"recording_tcp", make_recording<TcpTransport>, true},
      {"slow_loopback", make_slow<LoopbackTransport>, false},
      {"slow_tcp", make_slow<TcpTransport>, true},
      {"proven_tcp", make_keyed<TcpTransport, security::Cipher::kPlain>, true, kHandshake},
      {"sealed_tcp", make_keyed<TcpTransport, security::Cipher::kAes256Gcm>, false, kHandshake, 16},
      {"sealed_loopback", make_keyed<LoopbackTransport, security::Cipher::kChaCha20Poly1305>, false, kHandshake, 16},
      {"sealed_faulty_tcp", make_sealed_faulty<TcpTransport>, false, kHandshake, 16},
      {"recording_sealed_tcp", make_recording_sealed<TcpTransport>, false, kHandshake, 16},
  };
  if (ucx_is_built()) {
    all.push_back({"ucx", make<UcxOnLoopback>, false, {}, 0, true});
    all.push_back({"slow_ucx", make_slow<UcxOnLoopback>, false, {}, 0, true});
    all.push_back({"sealed_ucx", make_keyed<UcxOnLoopback, security::Cipher::kAes256Gcm>, false, kHandshake, 16, true});
  }
  return all;
}();

// A link over the case's transport, its handshake done. Limits are those of frames as send() takes them, so that every
// transport is asked for the same.
inline Link connect_over(const TransportCase& transport, Options client, Options server) {
  for (Options* options : {&client, &server}) {
    options->receive_window += options->receive_window / options->largest_frame * transport.seal_bytes;
    options->largest_frame += transport.seal_bytes;
  }
  Link link = make_link(transport.make(), client, server);
  if (transport.handshake.frames[0] != 0) {
    EXPECT_TRUE(pump({&link.client, &link.server}, [&] {
      return link.client->security().proven && link.server->security().proven;
    })) << "the handshake does not end";
  } else if (!transport.settles) {
    return link;
  }
  // What told of its last frames has been taken: now the link is quiet.
  while (link.client.poll() + link.server.poll() > 0 || wait(*link.client.connection, 1ms) ||
         wait(*link.server.connection, 1ms)) {
  }
  return link;
}

}  // namespace terrace::transport::test
