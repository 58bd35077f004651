// The pieces of a coordinator below app::Engine, for gates that put a wrong one in.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/parallel.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/manifest/manifest.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/backstop.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/file_slabs.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/planner/share.h"
#include "tests/e2e/support/gate_run.h"

namespace terrace::test {

// A model file as legs and sessions want it.
struct GateModel {
  explicit GateModel(const std::filesystem::path& path = demo_model());
  GateModel(const GateModel&) = delete;
  GateModel& operator=(const GateModel&) = delete;

  legs::OwnerTable share(const std::vector<std::string>& nodes, const std::string& spec) const;
  legs::SessionModel session_model(const std::vector<kernels::ExpertKernels>& our_kernels) const;

  mutable Serial serial;
  gguf::File file;
  manifest::ModelExperts experts;
  kernels::Ops ops;
  legs::FileSlabs slabs;
  std::vector<kernels::ExpertKernels> kernels;  // [n_layers], the widest of this machine
  manifest::Manifest manifest;
};

// Host leg, dispatcher and trunk over a model, nodes in order behind the host.
class GateCoordinator {
 public:
  // Everything is borrowed but the kernels, which are the host leg's. with_backstop: steps go on without nodes that
  // fail. clock: what says when a batch is late; null: the steady one.
  GateCoordinator(const GateModel& model, const legs::OwnerTable& owners, const legs::SlabLookup& lookup,
                  std::vector<kernels::ExpertKernels> host_kernels, const std::vector<legs::Leg*>& nodes = {},
                  std::uint32_t max_streams = 1, bool with_backstop = false,
                  arch::Overlap overlap = arch::Overlap::kAuto, legs::StepClock* clock = nullptr);

  arch::Trunk& trunk() { return *trunk_; }
  GateRun run(const std::vector<std::int32_t>& prompt, std::uint32_t batch, std::uint64_t max_tokens);

 private:
  const GateModel& model_;
  legs::HostLeg host_;
  std::unique_ptr<legs::Backstop> backstop_;
  legs::Dispatcher dispatcher_;
  std::unique_ptr<arch::Trunk> trunk_;
};

}  // namespace terrace::test
