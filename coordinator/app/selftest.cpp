// terrace selftest
#include "kernels/selftest/selftest.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/console.h"
#include "coordinator/app/command.h"
#include "coordinator/app/model_options.h"
#include "kernels/registry/registry.h"

namespace terrace::app {
namespace {

struct SelftestOptions {
  std::optional<kernels::Isa> isa;
  bool json = false;
};

OptionTable make_table(SelftestOptions* o) {
  OptionTable table("terrace selftest",
                    "Checks every kernel of this machine against the reference, and lists which ones it uses.");
  table.add("json", &o->json, "print one JSON object");
  add_isa_option(table, &o->isa);
  return table;
}

// True if a run with this --isa uses the row's kernel: the weight types' own, and the ISA of the trunk's operations.
bool is_chosen(const kernels::SelftestRow& row, const kernels::CpuFeatures& cpu, std::optional<kernels::Isa> forced) {
  const TensorTypeInfo* type = find_tensor_type(row.what);
  if (type == nullptr) {
    const auto ops = kernels::select_ops(cpu, forced);
    return ops.ok() && ops->isa == row.isa;
  }
  const auto chosen = kernels::select_weight_kernels(type->type, cpu, forced);
  return chosen.ok() && chosen->isa == row.isa;
}

}  // namespace

std::vector<std::string> selftest_option_names() {
  SelftestOptions o;
  return make_table(&o).option_names();
}

Status run_selftest(const CommandContext& context) {
  SelftestOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context));
  if (done) return {};
  const kernels::CpuFeatures cpu = kernels::detect_cpu_features();
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(cpu, o.isa));
  const std::vector<kernels::SelftestRow> rows = kernels::run_selftest(cpu);
  auto array = nlohmann::ordered_json::array();
  if (!o.json) print_out("leg host: this CPU has {}; the trunk's operations use {}\n", cpu.describe(), name(ops.isa));
  for (const kernels::SelftestRow& row : rows) {
    const bool chosen = is_chosen(row, cpu, o.isa);
    array.push_back({{"leg", "host"},
                     {"what", row.what},
                     {"isa", name(row.isa)},
                     {"kernel", row.kernel_name},
                     {"chosen", chosen},
                     {"ok", row.ok}});
    if (!o.json)
      print_out("  {:<8} {:<12} {:<28} {:<8} {}\n", row.what, name(row.isa), row.kernel_name,
                row.ok ? "equal" : "DIFFERS", chosen ? "used" : "");
  }
  if (o.json) print_json_line({{"isa", name(ops.isa)}, {"rows", array}});
  return kernels::check(rows);
}

}  // namespace terrace::app
