#include "coordinator/app/placement.h"

#include <utility>

#include "common/base/machine_limits.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/file_slabs.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/plan_file.h"
#include "coordinator/planner/share.h"

namespace terrace::app {
namespace {

struct Owners {
  std::vector<std::string> nodes;
  legs::OwnerTable table;
};

Result<Owners> read_owners(const gguf::File& file, const ModelOptions& options, const manifest::ModelExperts& experts) {
  const auto n_layers = static_cast<std::uint32_t>(experts.layers.size());
  if (!options.plan.empty()) {
    TERRACE_ASSIGN_OR_RETURN(planner::PlanFile plan, planner::read_plan_file(options.plan));
    TERRACE_ASSIGN_OR_RETURN(legs::OwnerTable owners, planner::owners_of(plan, file, n_layers, experts.n_experts));
    return Owners{std::move(plan.nodes), std::move(owners)};
  }
  planner::ShareInput input;
  input.nodes = options.nodes;
  input.n_layers = n_layers;
  input.n_experts = experts.n_experts;
  if (options.share.empty()) return Owners{options.nodes, planner::even_share(input)};
  TERRACE_ASSIGN_OR_RETURN(legs::OwnerTable owners, planner::share_from_flag(options.share, input));
  return Owners{options.nodes, std::move(owners)};
}

arch::TrunkOptions trunk_options(const ModelOptions& options, const manifest::ModelExperts& experts) {
  arch::TrunkOptions trunk;
  trunk.context = options.context;
  trunk.kv = options.kv;
  trunk.max_rows = options.batch;
  trunk.max_streams = options.streams;
  trunk.isa = options.isa;
  trunk.activations = options.activations;
  trunk.shift = experts.shift;
  return trunk;
}

Result<planner::HostInput> host_input(const gguf::File& file, const ModelOptions& options, const Placement& placement,
                                      std::size_t n_threads) {
  planner::HostInput host;
  for (const gguf::TensorInfo& tensor : file.tensors()) host.dense_bytes += tensor.bytes;
  host.dense_bytes -= placement.experts.total_bytes();
  host.cache_bytes = planner::cache_bytes(placement.info, options.context);
  host.scratch_bytes = planner::kProgramBytes + planner::trunk_scratch_bytes(placement.info, options.batch) +
                       planner::executor_scratch_bytes(placement.kernels, n_threads);
  if (options.ram) host.ram = options.ram->value;
  TERRACE_ASSIGN_OR_RETURN(host.available, memory_available());
  return host;
}

}  // namespace

Result<Placement> make_placement(const gguf::File& file, const ModelOptions& options, const kernels::CpuFeatures& cpu,
                                 std::size_t n_threads) {
  TERRACE_ASSIGN_OR_RETURN(manifest::ModelExperts experts, manifest::find_experts(file));
  TERRACE_ASSIGN_OR_RETURN(Owners owners, read_owners(file, options, experts));
  const arch::TrunkOptions trunk = trunk_options(options, experts);
  auto kernels = legs::select_layer_kernels(experts, cpu, options.isa, options.activations);
  if (!kernels.ok()) return kernels.error().in(file.path().string());
  TERRACE_ASSIGN_OR_RETURN(arch::ModelInfo info, arch::describe(file, trunk));
  Placement placement{.experts = std::move(experts),
                      .trunk = trunk,
                      .info = std::move(info),
                      .kernels = std::move(*kernels),
                      .nodes = std::move(owners.nodes),
                      .owners = std::move(owners.table),
                      .controls = {},
                      .memory = {}};
  for (const std::string& node : placement.nodes) {
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeControl> control, legs::make_grpc_node_control(node, {}));
    placement.controls.push_back(std::move(control));
  }
  const manifest::Manifest model = manifest::outline(placement.experts);
  planner::PlanInput input{.model = model,
                           .info = placement.info,
                           .owners = placement.owners,
                           .max_rows = options.batch,
                           .range_rows = legs::kPromptRangeRows,
                           .host = {}};
  TERRACE_ASSIGN_OR_RETURN(input.host, host_input(file, options, placement, n_threads));
  TERRACE_ASSIGN_OR_RETURN(placement.memory, planner::plan_memory(input, placement.controls));
  // Of many streams the cache is given a budget, for all of them together may ask for more than there is.
  if (options.streams > 1) placement.trunk.cache_bytes = placement.memory.room_for_cache;
  return placement;
}

}  // namespace terrace::app
