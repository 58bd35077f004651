// terrace plan
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/console.h"
#include "common/base/units.h"
#include "common/threads/cpus.h"
#include "coordinator/app/command.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/placement.h"
#include "coordinator/app/plan_speed.h"
#include "coordinator/app/probe.h"
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/plan_file.h"
#include "coordinator/planner/prediction_file.h"
#include "coordinator/terminal/notes.h"

namespace terrace::app {
namespace {

using planner::LegPlan;

struct PlanOptions {
  ModelOptions model;
  std::optional<std::filesystem::path> out;
  bool probe = false;
  bool explain = false;
  Bytes probe_memory = usual_probe_memory();
  std::optional<std::uint32_t> survive;
  std::optional<double> min_decode;
};

OptionTable make_table(PlanOptions* o) {
  OptionTable table("terrace plan",
                    "Says who would hold which experts, what memory that takes and how fast it is, before loading.");
  table.add("out", &o->out, "write the plan to this file, for --plan; only where it fits");
  table.add("json", &o->model.json, "print one JSON object");
  table.group("Speed");
  table.add("probe", &o->probe, "measure links, machines and disk now, and predict tokens a second");
  table.add("explain", &o->explain, "with --probe: print every term of the prediction, and what was measured");
  table.add("probe-memory", &o->probe_memory, "experts to measure each leg with, more than its caches hold")
      .range(kLeastProbeMemory, kMostProbeMemory)
      .default_text("2 last-level caches, 128M to 1G");
  table
      .add("survive", &o->survive,
           "with --probe: refuse a plan that decodes less than --min-decode after any N nodes are lost")
      .range(1, 16);
  table.add("min-decode", &o->min_decode, "tokens a second for --survive")
      .range(0, 1e9L)
      .default_text("half of the whole plan's");
  add_model_options(table, &o->model);
  return table;
}

std::string or_dash(std::uint64_t bytes) { return bytes == 0 ? "-" : format_size(bytes); }

// Calls tell(name, inheritance) of each node, where there are several.
template <class Tell>
void for_each_lost(const Placement& p, Tell tell) {
  for (std::size_t lost = 1; lost <= p.nodes.size() && p.nodes.size() > 1; ++lost)
    tell(p.owners.leg_name(lost), planner::inheritance_of(p.owners, lost, p.heirs));
}

nlohmann::ordered_json lost_json(const Placement& p) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for_each_lost(p, [&](const std::string& node, const planner::Inheritance& inheritance) {
    list.push_back(
        {{"node", node},
         {"heirs", planner::heirs_json(inheritance.heirs, [&](std::size_t leg) { return p.owners.leg_name(leg); })},
         {"bytes_to_move", planner::bytes_to_move(inheritance.heirs)},
         {"host_experts", inheritance.host_experts}});
  });
  return list;
}

void print_heirs(const Placement& p) {
  if (p.nodes.size() > 1) print_out("\n");
  for_each_lost(p, [&](const std::string& node, const planner::Inheritance& inheritance) {
    print_out("without {}:", node);
    for (const planner::Heir& heir : inheritance.heirs)
      print_out(" {} takes over {} experts ({}),", p.owners.leg_name(heir.leg), heir.experts, format_size(heir.bytes));
    print_out(" {} are computed here\n", inheritance.host_experts);
  });
}

void print_table(const Placement& p, const ModelOptions& options, const std::string& model, bool probe) {
  print_out("{}: {}, {} layers, {} experts, top {}\n\n", model, p.experts.architecture, p.experts.layers.size(),
            p.experts.n_experts, p.experts.top_k);
  std::size_t name = 3, experts = 7;
  for (const LegPlan& leg : p.memory.legs) {
    name = std::max(name, leg.name.size());
    experts = std::max(experts, leg.experts.size());
  }
  print_out("{:<{}}  {:<{}}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n", "leg", name, "experts",
            experts, "slabs", "weights", "vram", "dense", "cache", "windows", "scratch", "needs", "offers");
  for (const LegPlan& leg : p.memory.legs)
    print_out("{:<{}}  {:<{}}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}{}\n", leg.name, name,
              leg.experts, experts, leg.slabs, or_dash(leg.slab_bytes), or_dash(leg.vram_bytes),
              or_dash(leg.dense_bytes), or_dash(leg.cache_bytes), or_dash(leg.staging_bytes),
              format_size(leg.scratch_bytes), format_size(leg.needs), format_size(leg.offers),
              leg.fits() ? "" : "  does not fit");
  if (options.context != 0)
    print_out("\nthe cache holds {} positions\n", options.context);
  else if (p.memory.room_for_positions)
    print_out("\nthe cache is taken as needed, {} for each 1024 positions; there is room for {} of the model's {}\n",
              format_size(planner::cache_bytes(p.info, 1024)), *p.memory.room_for_positions, p.info.context);
  if (p.memory.fits()) print_out("it fits\n");
  if (!probe && p.memory.fits()) print_heirs(p);
  if (!probe) print_out("speed is not predicted: --probe measures links, machines and disk first\n");
}

void print_json(const Placement& p, const ModelOptions& options, const std::string& model,
                const nlohmann::ordered_json& prediction, const nlohmann::ordered_json& worst_loss) {
  nlohmann::ordered_json json;
  json["model"] = model;
  json["fits"] = p.memory.fits();
  json["ctx_size"] = options.context == 0 ? p.info.context : options.context;
  json["room_for_positions"] = nullptr;
  if (p.memory.room_for_positions) json["room_for_positions"] = *p.memory.room_for_positions;
  json["legs"] = planner::legs_json(p.memory);
  json["lost"] = lost_json(p);
  json["prediction"] = prediction;  // null: not measured
  if (!worst_loss.is_null()) json["worst_loss"] = worst_loss;
  print_json_line(json);
}

Status check_speed(const PlanOptions& o) {
  if (o.min_decode && !o.survive)
    return Error(ErrorCode::kInvalidArgument,
                 "--min-decode says how fast a plan is to be after losses; give --survive N");
  if (!o.probe && (o.explain || o.survive))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--{} is about speed, which is only predicted from measurements; give --probe",
                             o.explain ? "explain" : "survive"));
  return {};
}

Status check_survivors(const PlanOptions& o, std::size_t n_nodes) {
  if (!o.survive || *o.survive <= n_nodes) return {};
  const std::string least = fmt::format("--survive {}: the plan has", *o.survive);
  return Error(ErrorCode::kInvalidArgument,
               n_nodes == 0 ? fmt::format("{} no node to lose; give it some with --node or --plan", least)
                            : fmt::format("{} {} node{}; give no more", least, n_nodes, n_nodes == 1 ? "" : "s"));
}

// What a probe of a plan that fits says of it.
struct Speed {
  ProbeResult probe;
  planner::Outlook outlook;
  nlohmann::ordered_json prediction;
  std::optional<planner::WorstLoss> worst = {};  // of --survive
};

void print_worst(const Speed& speed) {
  std::string names;
  for (const std::size_t leg : speed.worst->loss.legs)
    names += (names.empty() ? "" : ", ") + speed.probe.measured.legs[leg].name;
  const std::string tried = planner::tried_text(*speed.worst);
  print_out("\nthe slowest loss of {}: without {} decode is {:.2f} tok/s{}{}\n", speed.worst->loss.legs.size(), names,
            speed.worst->loss.decode.tokens_per_second, tried.empty() ? "" : "; ", tried);
}

nlohmann::ordered_json worst_json(const Speed& speed) {
  nlohmann::ordered_json worst;
  worst["nodes"] = nlohmann::ordered_json::array();
  for (const std::size_t leg : speed.worst->loss.legs) worst["nodes"].push_back(speed.probe.measured.legs[leg].name);
  worst["decode_tokens_per_second"] = speed.worst->loss.decode.tokens_per_second;
  constexpr double kWholeNumbers = 9007199254740992;  // 2^53: as far as a double counts
  if (speed.worst->n_sets < kWholeNumbers)
    worst["sets"] = static_cast<std::uint64_t>(speed.worst->n_sets);
  else
    worst["sets"] = speed.worst->n_sets;
  worst["sets_tried"] = speed.worst->n_tried;
  return worst;
}

Result<Speed> measure_speed(const PlanOptions& o, const gguf::File& file, Placement& placement, const CpuChoice& cpus,
                            const Environment& environment) {
  terminal::Notes notes(terminal::notes_on_stderr(o.model.quiet, environment));
  TERRACE_ASSIGN_OR_RETURN(ProbeResult probe, run_probe(file, o.model, placement, cpus, o.probe_memory, notes));
  planner::Outlook outlook = planner::make_outlook(probe.input());
  nlohmann::ordered_json prediction = planner::prediction_json(probe.input(), outlook, date_now());
  Speed speed{std::move(probe), std::move(outlook), std::move(prediction)};
  if (o.survive) speed.worst = planner::worst_loss(speed.probe.input(), *o.survive);
  return speed;
}

}  // namespace

std::vector<std::string> plan_option_names() {
  PlanOptions o;
  return make_table(&o).option_names();
}

Status run_plan(const CommandContext& context) {
  PlanOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_RETURN_IF_ERROR(check(o.model));
  TERRACE_RETURN_IF_ERROR(check_speed(o));
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path path, model_file(o.model));
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(path));
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus,
                           choose_cpus(cpus_of_this_machine(), {o.model.threads, o.model.cpu_list}));
  TERRACE_ASSIGN_OR_RETURN(Placement placement,
                           make_placement(file, o.model, kernels::detect_cpu_features(), cpus.n_threads));
  TERRACE_RETURN_IF_ERROR(check_survivors(o, placement.nodes.size()));
  const std::string model = path.filename().string();
  std::optional<Speed> speed;
  if (!o.model.json) print_table(placement, o.model, model, o.probe);
  if (o.probe && placement.memory.fits()) {
    TERRACE_ASSIGN_OR_RETURN(speed, measure_speed(o, file, placement, cpus, context.environment));
    if (!o.model.json) print_outlook(speed->probe, speed->outlook, o.explain);
    if (!o.model.json && o.survive) print_worst(*speed);
  }
  const nlohmann::ordered_json prediction = speed ? speed->prediction : nlohmann::ordered_json();
  if (o.model.json)
    print_json(placement, o.model, model, prediction,
               speed && speed->worst ? worst_json(*speed) : nlohmann::ordered_json());
  TERRACE_RETURN_IF_ERROR(placement.memory.status());
  if (o.survive)
    TERRACE_RETURN_IF_ERROR(
        planner::check_survives(speed->probe.input(), speed->outlook, *speed->worst,
                                o.min_decode.value_or(speed->outlook.decode.tokens_per_second / 2)));
  if (o.out) return planner::write_plan_file(*o.out, file, placement.share, placement.memory, prediction);
  return {};
}

}  // namespace terrace::app
