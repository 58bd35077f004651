// The control plane: the gRPC service of proto/terrace/v1, with the standard health and reflection services.
//
// Threads  gRPC's own call it; it keeps nothing itself: sessions are the table's.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/security/credentials.h"
#include "common/threads/cpus.h"
#include "kernels/card/expert_card.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node {

// What Describe and Status say of this node.
struct NodeInfo {
  std::string isa;
  std::map<std::string, std::string> kernels;  // weight type -> kernel
  CpuChoice cpus;
  std::uint16_t data_port = 0;
  std::string machine;  // "x86_64"
  std::optional<kernels::CardFacts> card;
  std::vector<std::string> confinement;  // which rights the process has given up, for people
  std::string link_kind;                 // what data connections speak: "tcp", "ucx"
  std::string link;                      // the same with all that belongs to it, for people
};

// How long a client's connection may be of no use. A call that has begun is not bounded here: it may take as long as it
// needs, and so may a client that never sends all of one, as long as it sends something or answers pings: it holds its
// connection and at most 128 calls on it, no thread and no session.
struct ControlOptions {
  std::chrono::milliseconds handshake_timeout{5'000};   // until both ends have said HTTP/2 and their settings
  std::chrono::milliseconds idle_timeout{120'000};      // without a call; a coordinator connects again for the next one
  std::chrono::milliseconds keepalive_time{30'000};     // without a byte from the client: it is sent a ping
  std::chrono::milliseconds keepalive_timeout{20'000};  // without the answer: the connection and its calls end
  std::uint32_t max_connections = 256;                  // open at one time; see ControlListener
  Logger log = Logger::silent();                        // what the listener meets
  std::shared_ptr<security::Credentials> credentials{};  // given: required of every client; null: none, on loopback
};

class ControlServer {
 public:
  // Listens on `address`, a numeric HOST:PORT; port 0: the system's choice. All is borrowed and outlives it.
  // kIo: the address cannot be bound; the text names it.
  static Result<std::unique_ptr<ControlServer>> start(const std::string& address, SessionTable& sessions,
                                                      SlabLoader& loader, const NodeInfo& info,
                                                      const ControlOptions& options = {});
  // Ends calls in progress and waits for them.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  std::uint16_t port() const;
  const std::string& address() const;  // HOST:PORT with the port as bound

  // Health says NOT_SERVING from now on.
  void announce_drain();

 private:
  struct Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace terrace::node
