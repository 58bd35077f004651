// terrace status
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/base/units.h"
#include "coordinator/app/command.h"
#include "coordinator/legs/grpc_node_control.h"

namespace terrace::app {
namespace {

struct StatusOptions {
  std::string node;
  bool json = false;
};

OptionTable make_table(StatusOptions* o) {
  OptionTable table("terrace status", "Shows what a tier node is and does.");
  table.add("node", &o->node, "the node, HOST:PORT").required();
  table.add("json", &o->json, "print one JSON object");
  return table;
}

nlohmann::ordered_json to_json(const legs::NodeStatus& s) {
  auto sessions = nlohmann::ordered_json::array();
  for (const legs::NodeSessionStatus& session : s.sessions)
    sessions.push_back({{"session", fmt::format("{:016x}", session.session)},
                        {"coordinator", session.coordinator},
                        {"epoch", session.epoch},
                        {"experts", session.experts},
                        {"batches", session.batches},
                        {"rows", session.rows},
                        {"pairs", session.pairs},
                        {"bytes_sent", session.bytes_sent},
                        {"bytes_received", session.bytes_received},
                        {"compute_us", session.compute_us}});
  return {{"listen", s.listen},
          {"boot_id", fmt::format("{:016x}", s.boot_id)},
          {"version", s.version},
          {"numerics_version", s.numerics_version},
          {"state", s.state},
          {"isa", s.isa},
          {"kernels", s.kernels},
          {"memory", {{"budget", s.memory_budget}, {"reserved", s.memory_reserved}, {"used", s.memory_used}}},
          {"sessions", sessions}};
}

void print_table(const legs::NodeStatus& s) {
  fmt::print("{}  {}  terrace-node {}  boot {:016x}  numerics {}  isa {}\n", s.listen, s.state, s.version, s.boot_id,
             s.numerics_version, s.isa);
  fmt::print("memory  {} of {} reserved, {} in use\n", format_size(s.memory_reserved), format_size(s.memory_budget),
             format_size(s.memory_used));
  fmt::print("kernels");
  for (const auto& [type, kernel] : s.kernels) fmt::print("  {}: {}", type, kernel);
  fmt::print("\n");
  if (s.sessions.empty()) fmt::print("no sessions\n");
  for (const legs::NodeSessionStatus& session : s.sessions)
    fmt::print(
        "session {:016x}  {}  epoch {}  {} experts  {} batches  {} rows  {} pairs  {} sent  {} received  "
        "{} ms computing\n",
        session.session, session.coordinator, session.epoch, session.experts, session.batches, session.rows,
        session.pairs, format_size(session.bytes_sent), format_size(session.bytes_received), session.compute_us / 1000);
}

}  // namespace

std::vector<std::string> status_option_names() {
  StatusOptions o;
  return make_table(&o).option_names();
}

Status run_status(const CommandContext& context) {
  StatusOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context));
  if (done) return {};
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<legs::NodeControl> control, legs::make_grpc_node_control(o.node, {}));
  TERRACE_ASSIGN_OR_RETURN(const legs::NodeStatus status, control->status());
  if (o.json)
    fmt::print("{}\n", to_json(status).dump());
  else
    print_table(status);
  return {};
}

}  // namespace terrace::app
