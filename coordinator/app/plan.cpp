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
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/plan_file.h"

namespace terrace::app {
namespace {

using planner::LegPlan;

struct PlanOptions {
  ModelOptions model;
  std::optional<std::filesystem::path> out;
};

OptionTable make_table(PlanOptions* o) {
  OptionTable table("terrace plan",
                    "Says who would hold which experts and what memory that takes, before anything is loaded.");
  table.add("out", &o->out, "write the plan to this file, for --plan; only where it fits");
  table.add("json", &o->model.json, "print one JSON object");
  add_model_options(table, &o->model);
  return table;
}

std::string or_dash(std::uint64_t bytes) { return bytes == 0 ? "-" : format_size(bytes); }

void print_table(const Placement& p, const ModelOptions& options, const std::string& model) {
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
}

void print_json(const Placement& p, const ModelOptions& options, const std::string& model) {
  nlohmann::ordered_json json;
  json["model"] = model;
  json["fits"] = p.memory.fits();
  json["ctx_size"] = options.context == 0 ? p.info.context : options.context;
  json["room_for_positions"] = nullptr;
  if (p.memory.room_for_positions) json["room_for_positions"] = *p.memory.room_for_positions;
  json["legs"] = planner::legs_json(p.memory);
  print_json_line(json);
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
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path path, model_file(o.model));
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(path));
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus,
                           choose_cpus(cpus_of_this_machine(), {o.model.threads, o.model.cpu_list}));
  TERRACE_ASSIGN_OR_RETURN(const Placement placement,
                           make_placement(file, o.model, kernels::detect_cpu_features(), cpus.n_threads));
  const std::string model = path.filename().string();
  if (o.model.json)
    print_json(placement, o.model, model);
  else
    print_table(placement, o.model, model);
  TERRACE_RETURN_IF_ERROR(placement.memory.status());
  if (o.out) return planner::write_plan_file(*o.out, file, placement.share, placement.memory);
  return {};
}

}  // namespace terrace::app
