// Where a run's experts will be and what memory that takes, settled before anything is loaded: from the headers of the
// file, the options, and what the nodes say.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/security/credentials.h"
#include "coordinator/app/model_options.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/planner/heirs.h"
#include "coordinator/planner/memory_plan.h"
#include "coordinator/planner/prediction_file.h"
#include "kernels/card/open_cards.h"
#include "kernels/executor/executor.h"

namespace terrace::app {

struct Placement {
  manifest::ModelExperts experts;
  arch::TrunkOptions trunk;
  arch::ModelInfo info;
  std::vector<kernels::ExpertKernels> kernels;         // [n_layers], this machine's
  std::vector<std::string> nodes;                      // of --node, or of the plan file
  std::shared_ptr<security::Credentials> credentials;  // for the links to them; null: none, on loopback
  kernels::OpenedCards cards;                          // of --gpu: opened, their memory taken; the first is the trunk's
  std::uint64_t card_dense_bytes = 0;                  // of it, the first for the trunk, or its dense matrices
  std::optional<Error> off_card;                       // why it has not the whole trunk
  legs::OwnerTable share;                              // host and nodes, as the options or the plan say it
  legs::OwnerTable owners;  // the same; cards, the last legs, have the hot part of the host's
  std::vector<std::unique_ptr<legs::NodeControl>> controls;  // [nodes]
  planner::MemoryPlan memory;                                // may say that it does not fit
  planner::HeirTerms heirs;                                  // who takes over a lost node's experts
  std::optional<planner::StatedPrediction> stated;           // by the plan file
};

// What this machine's memory is asked for: `placement` is settled but for its memory and heirs. --ram is for cards too
// whose memory is the host's; kOutOfMemory: they take all of it.
Result<planner::HostInput> host_input(const gguf::File& file, const ModelOptions& options, const Placement& placement,
                                      std::size_t n_threads);

// n_threads: that compute here. Errors name file, share, plan file, node or card; that memory is short is none of them,
// but for a card's: that is taken here.
Result<Placement> make_placement(const gguf::File& file, const ModelOptions& options, const kernels::CpuFeatures& cpu,
                                 std::size_t n_threads);

}  // namespace terrace::app
