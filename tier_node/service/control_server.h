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

#include "common/base/result.h"
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
};

class ControlServer {
 public:
  // Listens on `address`, a numeric HOST:PORT; port 0: the system's choice. All is borrowed and outlives it.
  // kIo: the address cannot be bound; the text names it.
  static Result<std::unique_ptr<ControlServer>> start(const std::string& address, SessionTable& sessions,
                                                      SlabLoader& loader, const NodeInfo& info);
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
