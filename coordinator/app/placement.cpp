#include "coordinator/app/placement.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/machine_limits.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/auditor.h"
#include "coordinator/legs/backstop.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/file_slabs.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/share_trial.h"
#include "coordinator/planner/card_share.h"
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/plan_file.h"
#include "coordinator/planner/share.h"
#include "kernels/cuda/experts/open.h"

namespace terrace::app {
namespace {

struct Owners {
  std::vector<std::string> nodes;
  legs::OwnerTable table;
  std::optional<planner::StatedPrediction> stated = {};  // of the plan file
};

Result<Owners> read_owners(const gguf::File& file, const ModelOptions& options, const manifest::ModelExperts& experts) {
  const auto n_layers = static_cast<std::uint32_t>(experts.layers.size());
  if (!options.plan.empty()) {
    TERRACE_ASSIGN_OR_RETURN(planner::PlanFile plan, planner::read_plan_file(options.plan));
    TERRACE_ASSIGN_OR_RETURN(legs::OwnerTable owners, planner::owners_of(plan, file, n_layers, experts.n_experts));
    return Owners{std::move(plan.nodes), std::move(owners), std::move(plan.prediction)};
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
  trunk.max_rows = prompt_rows(options);
  // Beside what is asked for the one that a conversation goes on in when its template writes it anew.
  trunk.max_streams = std::max(options.streams, 2u);
  trunk.isa = options.isa;
  trunk.activations = options.activations;
  trunk.shift = experts.shift;
  trunk.overlap = options.overlap;
  return trunk;
}

// What of the trunk a card takes.
struct TrunkPart {
  std::uint64_t bytes = 0;        // the first of its slab memory
  std::uint64_t cache_bytes = 0;  // of those
  std::uint64_t pinned_bytes = 0;
  std::optional<Error> off_card;
};

// The whole of it, or else the dense matrices, or else nothing; what `options` then say is noted there.
Result<TrunkPart> give_trunk(const gguf::File& file, kernels::ExpertCard& card, const arch::ModelInfo& info,
                             arch::TrunkOptions& options) {
  TrunkPart part;
  const auto on_card = [&]() -> Result<planner::TrunkOnCard> {
    TERRACE_ASSIGN_OR_RETURN(const kernels::CardTrunkModel model, arch::card_model(file, options));
    return planner::trunk_on(card, model, info, options);
  }();
  if (on_card.ok()) {
    part.bytes = on_card->bytes;
    part.cache_bytes = on_card->cache_bytes;
    part.pinned_bytes = on_card->pinned_bytes;
    options.on_card = on_card->limits;
  } else {
    part.off_card = on_card.error();
    part.bytes = planner::dense_bytes_on(card, info);
  }
  if (part.bytes > 0) options.card = &card;
  options.card_memory = card.slab_memory().first(part.bytes);
  return part;
}

// `share` with a leg more for each card. dense_bytes: of the first card's memory, that are not for experts.
legs::OwnerTable with_cards(const legs::OwnerTable& share, const kernels::OpenedCards& opened,
                            std::uint64_t dense_bytes, std::span<const kernels::ExpertKernels> layers) {
  legs::OwnerTable owners = share;
  for (const auto& card : opened.cards) {
    const std::uint64_t taken = card == opened.cards.front() ? dense_bytes : 0;
    owners = planner::give_hot_part(owners, *card, card->slab_memory().size() - taken, layers);
  }
  return owners;
}

// Rows of a step, the most first: all but the last are for a card that computes whole steps, so has all experts.
std::vector<std::uint32_t> rows_to_try(const ModelOptions& options, const arch::ModelInfo& info) {
  const std::uint64_t context = options.context == 0 ? info.context : options.context;
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(kCardPromptRows, context));
  // Nodes and several sequences would wait for such a step.
  if (options.batch || options.streams > 1 || !options.nodes.empty() || !options.plan.empty() || most <= kPromptRows)
    return {prompt_rows(options)};
  return {most, kPromptRows};
}

// What each node has room for beside its share, while there is another node that may be lost.
Result<planner::HeirTerms> heir_terms(const manifest::Manifest& model, const Placement& placement) {
  planner::HeirTerms terms = planner::heir_terms(model, placement.owners.n_legs());
  if (placement.controls.size() < 2 || !placement.memory.fits()) return terms;
  for (std::size_t leg = 1; leg <= placement.controls.size(); ++leg) {
    const std::uint64_t room = placement.memory.legs[leg].room();
    TERRACE_ASSIGN_OR_RETURN(const std::uint64_t trial, legs::trial_bytes(*placement.controls[leg - 1], model));
    terms.room[leg] = room - std::min(room, trial);
  }
  const auto& stated = placement.stated;
  if (!stated) return terms;
  terms.host_room = placement.memory.legs.front().room();
  for (std::size_t leg = 0; leg < placement.owners.n_legs(); ++leg)
    terms.stays.push_back(std::ranges::find(stated->staying, placement.owners.leg_name(leg)) != stated->staying.end());
  // Speeds of all nodes or of none: beside one that is told, a node without would look a million times slower.
  planner::HeirTerms with_speeds = terms;
  for (std::size_t leg = 1; leg <= placement.controls.size(); ++leg) {
    const auto told = std::ranges::find(stated->speeds, placement.owners.leg_name(leg), &planner::StatedSpeed::leg);
    if (told == stated->speeds.end()) return terms;
    with_speeds.expert_seconds[leg] = told->expert_seconds;
  }
  return with_speeds;
}

}  // namespace

Result<planner::HostInput> host_input(const gguf::File& file, const ModelOptions& options, const Placement& placement,
                                      std::size_t n_threads) {
  planner::HostInput host;
  for (const gguf::TensorInfo& tensor : file.tensors()) host.dense_bytes += tensor.bytes;
  host.dense_bytes -= placement.experts.total_bytes();
  if (!placement.trunk.on_card) host.cache_bytes = planner::cache_bytes(placement.info, options.context);
  host.scratch_bytes = planner::kProgramBytes + planner::trunk_scratch_bytes(placement.info, prompt_rows(options)) +
                       planner::executor_scratch_bytes(placement.kernels, n_threads);
  if (!placement.nodes.empty())  // what stands in for them computes as the host leg does, and has a ring to read into
    host.scratch_bytes +=
        legs::backstop_bytes(placement.experts) + planner::executor_scratch_bytes(placement.kernels, n_threads);
  if (!placement.nodes.empty() && options.audit > 0)
    host.scratch_bytes += legs::Auditor::scratch_bytes(placement.kernels, n_threads, prompt_rows(options),
                                                       placement.experts.top_k, placement.nodes.size());
  if (options.ram) {
    TERRACE_ASSIGN_OR_RETURN(host.ram, kernels::ram_beside_cards(options.ram->value, placement.cards.host_bytes()));
  }
  TERRACE_ASSIGN_OR_RETURN(host.available, memory_available());
  return host;
}

Result<Placement> make_placement(const gguf::File& file, const ModelOptions& options, const kernels::CpuFeatures& cpu,
                                 std::size_t n_threads) {
  TERRACE_ASSIGN_OR_RETURN(manifest::ModelExperts experts, manifest::find_experts(file));
  TERRACE_ASSIGN_OR_RETURN(Owners owners, read_owners(file, options, experts));
  arch::TrunkOptions trunk = trunk_options(options, experts);
  if (owners.stated) {
    trunk.decode_in_halves = owners.stated->decode_halves_pay;
    trunk.prompt_parts = owners.stated->prompt_parts;
  }
  auto kernels = legs::select_layer_kernels(experts, cpu, options.isa, options.activations);
  if (!kernels.ok()) return kernels.error().in(file.path().string());
  TERRACE_ASSIGN_OR_RETURN(arch::ModelInfo info, arch::describe(file, trunk));
  TERRACE_ASSIGN_OR_RETURN(kernels::OpenedCards cards, kernels::open_cards(options.card, [](auto index, auto budget) {
                             return kernels::cuda::open_expert_card(index, budget);
                           }));
  legs::OwnerTable share = std::move(owners.table);
  legs::OwnerTable all_owners = share;
  TrunkPart part;
  if (!cards.cards.empty()) {
    for (const std::uint32_t rows : rows_to_try(options, info)) {
      arch::TrunkOptions tried = trunk;
      tried.max_rows = rows;
      TERRACE_ASSIGN_OR_RETURN(part, give_trunk(file, *cards.cards.front(), info, tried));
      all_owners = with_cards(share, cards, part.bytes, *kernels);
      const std::size_t first_card = share.n_legs();
      if (rows == prompt_rows(options) || (tried.on_card && planner::owns_all(all_owners, first_card))) {
        trunk = tried;
        break;
      }
    }
  }
  Placement placement{.experts = std::move(experts),
                      .trunk = trunk,
                      .info = std::move(info),
                      .kernels = std::move(*kernels),
                      .nodes = std::move(owners.nodes),
                      .credentials = {},
                      .cards = std::move(cards),
                      .card_dense_bytes = part.bytes,
                      .off_card = std::move(part.off_card),
                      .share = std::move(share),
                      .owners = std::move(all_owners),
                      .controls = {},
                      .memory = {},
                      .heirs = {},
                      .stated = std::move(owners.stated)};
  if (!placement.nodes.empty()) {
    TERRACE_ASSIGN_OR_RETURN(placement.credentials, load_credentials(options.security, options.log));
  }
  legs::ControlTimeouts timeouts;
  timeouts.progress = std::chrono::ceil<std::chrono::milliseconds>(options.load_timeout);
  for (const std::string& node : placement.nodes) {
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeControl> control,
                             legs::make_grpc_node_control(node, timeouts, placement.credentials));
    placement.controls.push_back(std::move(control));
  }
  const manifest::Manifest model = manifest::outline(placement.experts);
  planner::PlanInput input{.model = model,
                           .info = placement.info,
                           .owners = placement.owners,
                           .max_rows = prompt_rows(options),
                           .range_rows = legs::kPromptRangeRows,
                           .sockets = options.sockets,
                           .link = transport::name(options.link.link),
                           .host = {}};
  for (const auto& card : placement.cards.cards) {
    const TrunkPart its = card == placement.cards.cards.front() ? part : TrunkPart{};
    input.cards.push_back(planner::describe(*card, its.bytes - its.cache_bytes, its.cache_bytes, its.pinned_bytes));
  }
  TERRACE_ASSIGN_OR_RETURN(input.host, host_input(file, options, placement, n_threads));
  TERRACE_ASSIGN_OR_RETURN(placement.memory, planner::plan_memory(input, placement.controls));
  TERRACE_ASSIGN_OR_RETURN(placement.heirs, heir_terms(model, placement));
  // Of many streams the cache is given a budget, for all of them together may ask for more than there is.
  if (options.streams > 1 && !placement.trunk.on_card) placement.trunk.cache_bytes = placement.memory.room_for_cache;
  return placement;
}

}  // namespace terrace::app
