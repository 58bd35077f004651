#include "coordinator/app/probe.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "common/base/machine_identity.h"
#include "common/threads/pool.h"
#include "coordinator/app/probe_legs.h"
#include "coordinator/app/probe_model.h"
#include "coordinator/app/probe_trunk.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/planner/prediction_file.h"

namespace terrace::app {
namespace {

planner::ModelNumbers numbers_of(const Placement& placement, const ProbeModel& model, std::uint32_t prompt_rows) {
  planner::ModelNumbers numbers;
  numbers.d_model = placement.experts.d_model;
  numbers.n_experts = placement.experts.n_experts;
  numbers.top_k = placement.experts.top_k;
  numbers.prompt_rows = prompt_rows;
  numbers.range_rows = legs::kPromptRangeRows;
  for (std::size_t kind = 0; kind < model.n_kinds(); ++kind)
    numbers.kinds.push_back(
        {model.shape(kind).slab_bytes(), model.kernels()[kind].gate_class(), model.kernels()[kind].up_class()});
  for (std::uint32_t layer = 0; layer < placement.share.n_layers(); ++layer) {
    if (placement.experts.layers[layer].shape.n_experts == 0) continue;
    numbers.kind_of_layer.push_back(model.kind_of_layer(layer));
    numbers.owned_of_layer.push_back(planner::owned_in_layer(placement.share, layer));
  }
  return numbers;
}

std::vector<std::uint64_t> room_of(const planner::MemoryPlan& memory) {
  std::vector<std::uint64_t> room;
  for (const planner::LegPlan& leg : memory.legs) room.push_back(leg.room());
  return room;
}

// Of each node, as a run with this plan will deal them.
std::vector<planner::InheritedShare> inherited_shares(const Placement& placement,
                                                      const planner::Measurements& measured) {
  planner::HeirTerms terms = placement.heirs;
  terms.stays.clear();  // what is measured now says it anew
  for (std::size_t leg = 0; leg < measured.legs.size(); ++leg)
    terms.expert_seconds[leg] = planner::expert_seconds(measured.legs[leg]);
  std::vector<planner::InheritedShare> shares;
  for (std::size_t lost = 1; lost < measured.legs.size(); ++lost) {
    planner::Inheritance inheritance = planner::inheritance_of(placement.share, lost, terms);
    planner::InheritedShare& share = shares.emplace_back();
    share.heirs = std::move(inheritance.heirs);
    for (std::uint32_t layer = 0; layer < placement.share.n_layers(); ++layer) {
      if (placement.experts.layers[layer].shape.n_experts == 0) continue;
      std::vector<std::uint32_t> owned = planner::owned_in_layer(inheritance.owners, layer);
      const std::uint32_t host_had = planner::owned_in_layer(placement.share, layer)[0];
      owned[lost] = owned[0] - host_had;
      owned[0] = host_had;
      share.owned_of_layer.push_back(std::move(owned));
    }
  }
  return shares;
}

// Steps of the model's own trunk over the probe's experts, with the first layer's share, which is that of all layers in
// most plans. Of decoding it also says what the trunk takes between layers of experts.
class WholeSteps {
 public:
  WholeSteps(const gguf::File& file, const arch::TrunkOptions& trunk, Parallel& parallel, ProbeLegs& legs,
             const planner::ModelNumbers& model)
      : file_(file), trunk_(trunk), parallel_(parallel), legs_(legs), model_(model) {
    model_.owned_of_layer.assign(model_.kind_of_layer.size(), model_.owned_of_layer.front());
  }

  Status measure(bool decode, planner::Measurements& measured, std::vector<std::string>& notes) {
    if (measured.legs.size() < 2 && !decode) return {};
    const char* const what = decode ? "decode" : "prompt";
    const auto& owned = model_.owned_of_layer.front();
    if (const Status enough = legs_.check_layers(decode ? 1 : model_.prompt_rows, model_.top_k, owned); !enough.ok()) {
      notes.push_back(fmt::format("a {} step was not measured whole: {}; the prediction is the sum of its terms", what,
                                  enough.error().text()));
      return {};
    }
    const planner::Places places(measured.legs.size(), planner::Place::kItself);
    const auto terms =
        decode ? planner::predict_decode(model_, measured, places) : planner::predict_prompt(model_, measured, places);
    trunk_.prompt_parts = std::max(terms.parts, 2u);
    ProbeLegs::Layers layers(legs_, model_.top_k, owned);
    TERRACE_ASSIGN_OR_RETURN(const MeasuredSteps steps, measure_steps(file_, trunk_, parallel_, layers, decode,
                                                                      model_.prompt_rows, [&] { layers.restart(); }));
    const double step = (steps.seconds - layers.drawing()) / steps.n;
    if (decode) measured.decode.trunk = std::max(0.0, (steps.seconds - layers.inside()) / steps.n);
    if (measured.legs.size() < 2) return {};
    const double seen = decode ? step - measured.decode.trunk : step;
    const double said = decode ? terms.layers + terms.dispatch : terms.step;
    if (said <= 0) return {};
    const double ratio = seen / said;
    (decode ? measured.decode : measured.prompt).whole_over_terms = ratio;
    if (ratio < 0.75 || ratio > 1.33)
      notes.push_back(
          fmt::format("a {} measured whole took {:.2f} of the sum of its terms: other programs run, or legs "
                      "share more than cores; cases with another share are less certain",
                      decode ? "decode step's layers" : "prompt's step", ratio));
    return {};
  }

 private:
  const gguf::File& file_;
  arch::TrunkOptions trunk_;
  Parallel& parallel_;
  ProbeLegs& legs_;
  planner::ModelNumbers model_;  // with that share in every layer
};

std::string probe_name() { return fmt::format("probe of pid {}", getpid()); }

void note_caches(const ProbeModel& model, const ProbeLegs& legs, const Placement& placement,
                 std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < model.owners().n_legs(); ++i) {
    const std::uint64_t cache = i == 0 ? last_level_cache_bytes() : legs.cache_bytes(i);
    const bool whole_share = model.leg_bytes(i) >= placement.memory.legs[i].slab_bytes;
    if (model.leg_bytes(i) > cache || whole_share) continue;
    notes.push_back(
        fmt::format("{}: measured with {} of experts, which its cache of {} may hold: its rates may be too "
                    "good; raise --probe-memory",
                    model.owners().leg_name(i), format_size(model.leg_bytes(i)), format_size(cache)));
  }
}

}  // namespace

Bytes usual_probe_memory() {
  return {std::clamp(2 * last_level_cache_bytes(), std::uint64_t{128} << 20, kMostProbeMemory)};
}

Result<ProbeResult> run_probe(const gguf::File& file, const ModelOptions& options, Placement& placement,
                              const CpuChoice& cpus, Bytes memory, terminal::Notes& notes) {
  if (!placement.cards.cards.empty())
    return Error(ErrorCode::kUnsupported,
                 "--probe measures CPUs, nodes, links and disks; this machine's cards are not measured yet: leave out "
                 "--gpu, or --probe");
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(kernels::detect_cpu_features(), options.isa));
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Pool> pool, Pool::create(cpus));
  ProbeResult result;
  result.room = room_of(placement.memory);

  notes.print("probing the trunk");
  TERRACE_ASSIGN_OR_RETURN(const TrunkTimes trunk, measure_trunk(file, placement.trunk, prompt_rows(options), *pool));
  result.measured.decode.trunk = trunk.decode;
  result.measured.prompt.trunk = trunk.prompt;

  notes.print("probing the disk");
  TERRACE_ASSIGN_OR_RETURN(result.disk, measure_disk(file, placement.experts));
  result.measured.disk = result.disk.best();

  notes.print("making experts to probe with");
  TERRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<ProbeModel> model,
      ProbeModel::make({placement.experts, placement.share, placement.kernels, memory.value}, ops, *pool));
  result.model = numbers_of(placement, *model, trunk.prompt_rows);
  arch::TrunkOptions most_parts = placement.trunk;
  most_parts.prompt_parts = legs::kMostLayersOpen;
  result.model.prompt_parts = static_cast<std::uint32_t>(arch::step_parts(most_parts, false, trunk.prompt_rows, true));
  for (std::size_t i = 0; i < model->owners().n_legs(); ++i) result.leg_bytes.push_back(model->leg_bytes(i));

  // As a run opens its sessions (Engine).
  TERRACE_ASSIGN_OR_RETURN(const std::shared_ptr<transport::Transport> transport, open_link(options.link));
  TERRACE_ASSIGN_OR_RETURN(legs::NodeSessionOptions session, session_options(options, probe_name(), cpus.waiting));
  session.parallel = pool.get();
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ProbeLegs> legs,
                           ProbeLegs::open(*model, *pool, ops, *transport, std::move(placement.controls), session,
                                           trunk.decode / static_cast<double>(result.model.kind_of_layer.size())));
  // After every thread that is started for the sessions: those must not inherit it.
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, pool->pin_caller());
  notes.print("probing {}", model->owners().n_legs() == 1 ? "this machine" : "this machine, its nodes and their links");
  planner::Measurements& measured = result.measured;
  TERRACE_ASSIGN_OR_RETURN(measured.legs, legs->measure_legs());
  measured.legs[0].machine = machine_id();
  measured.legs[0].threads = cpus.n_threads;
  TERRACE_ASSIGN_OR_RETURN(measured.fan_out, legs->measure_fan_out());
  const std::uint32_t top_k = result.model.top_k;
  TERRACE_ASSIGN_OR_RETURN(measured.decode.dispatch, legs->measure_dispatch(1, top_k));
  TERRACE_ASSIGN_OR_RETURN(measured.prompt.dispatch, legs->measure_dispatch(result.model.prompt_rows, top_k));
  WholeSteps whole(file, placement.trunk, *pool, *legs, result.model);
  TERRACE_RETURN_IF_ERROR(whole.measure(true, measured, result.notes));
  TERRACE_RETURN_IF_ERROR(whole.measure(false, measured, result.notes));
  if (measured.legs.size() > 2) result.inherited = inherited_shares(placement, measured);
  note_caches(*model, *legs, placement, result.notes);
  return result;
}

}  // namespace terrace::app
