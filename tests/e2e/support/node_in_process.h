// A tier node in this process: its session table, control server and data server, the latter over any transport and
// with any limits.
#pragma once

#include <memory>
#include <string>

#include "common/arena/slab_store.h"
#include "common/base/parallel.h"
#include "common/transport/connection.h"
#include "common/transport/sealed/sealed.h"
#include "kernels/cpu/ops/ops.h"
#include "tier_node/service/control_server.h"
#include "tier_node/service/data_server.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::test {

class NodeInProcess {
 public:
  // `transport` is what lies below the proofs of both ends, and borrowed; throws when it cannot start. host: where both
  // ports are, which the system chooses. ops: what it computes with, for a node that computes wrong; null: this
  // machine's. executor: as DataServer::Parts has it.
  NodeInProcess(transport::Transport& transport, const node::LimitOptions& limits,
                Waiting waiting = Waiting::kSpinThenPark, const node::DataServerOptions& data = {},
                const std::string& host = "127.0.0.1", const kernels::Ops* ops = nullptr,
                const node::MakePairExecutor& executor = node::make_pair_executor);
  ~NodeInProcess();

  const std::string& address() const { return control_->address(); }  // of the control plane, over gRPC
  std::uint16_t data_port() const { return data_->port(); }
  node::SessionTable& sessions() { return *sessions_; }
  arena::SlabStore& store() { return store_; }

 private:
  Serial compute_;
  kernels::Ops ops_;
  arena::SlabStore store_;
  std::unique_ptr<node::SessionTable> sessions_;
  std::unique_ptr<node::SlabLoader> loader_;
  transport::SealedTransport transport_;
  std::unique_ptr<node::DataServer> data_;
  std::unique_ptr<node::ControlServer> control_;
};

}  // namespace terrace::test
