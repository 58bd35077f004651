// terrace status
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/console.h"
#include "common/base/units.h"
#include "coordinator/app/command.h"
#include "coordinator/app/model_options.h"
#include "coordinator/legs/grpc_node_control.h"

namespace terrace::app {
namespace {

struct StatusOptions {
  std::vector<std::string> node;  // one: a list only so that a configuration file may name the nodes of generate
  security::SecurityOptions security;
  bool json = false;
};

OptionTable make_table(StatusOptions* o) {
  OptionTable table("terrace status", "Shows what a tier node is and does.");
  table.add("node", &o->node, "the node to ask, exactly one").value_name("HOST:PORT").required();
  security::add_security_options(table, &o->security);
  table.add("json", &o->json, "print one JSON object");
  return table;
}

nlohmann::ordered_json to_json(const legs::NodeStatus& s) {
  auto sessions = nlohmann::ordered_json::array();
  for (const legs::NodeSessionStatus& session : s.sessions)
    sessions.push_back({{"number", session.number},
                        {"coordinator", session.coordinator},
                        {"epoch", session.epoch},
                        {"experts", session.experts},
                        {"batches", session.batches},
                        {"rows", session.rows},
                        {"pairs", session.pairs},
                        {"bytes_sent", session.bytes_sent},
                        {"bytes_received", session.bytes_received},
                        {"compute_us", session.compute_us},
                        {"sealed", session.data_cipher != "plain"},
                        {"data_cipher", session.data_cipher},
                        {"sockets", session.sockets},
                        {"link_bytes_per_second", session.link_bytes_per_second},
                        {"paced_bytes_per_second", session.paced_bytes_per_second}});
  auto cards = nlohmann::ordered_json::array();
  for (const legs::NodeCardStatus& card : s.cards)
    cards.push_back({{"index", card.index},
                     {"name", card.name},
                     {"memory", {{"budget", card.budget}, {"reserved", card.reserved}, {"used", card.used}}}});
  return {{"listen", s.listen},
          {"boot_id", fmt::format("{:016x}", s.boot_id)},
          {"version", s.version},
          {"numerics_version", s.numerics_version},
          {"state", s.state},
          {"isa", s.isa},
          {"kernels", s.kernels},
          {"memory",
           {{"budget", s.memory_budget},
            {"reserved", s.memory_reserved},
            {"used", s.memory_used},
            {"locked", s.memory_locked}}},
          {"cards", cards},
          {"threads", s.threads},
          {"cpus", s.cpus},
          {"pinned", s.pinned},
          {"waiting", s.waiting},
          {"cpu_choice", s.cpu_choice},
          {"confinement", s.confinement},
          {"link", s.link},
          {"sessions", sessions}};
}

// "sealed, aes-256-gcm; 2 for prompts; 112M/s, paced to 90M/s"
std::string describe_links(const legs::NodeSessionStatus& s) {
  std::string text = s.data_cipher == "plain" ? s.data_cipher : "sealed, " + s.data_cipher;
  if (s.sockets > 1) text += fmt::format("; {} for prompts", s.sockets);
  if (s.link_bytes_per_second > 0) text += fmt::format("; {}/s", format_size(s.link_bytes_per_second));
  if (s.paced_bytes_per_second > 0) text += fmt::format(", paced to {}/s", format_size(s.paced_bytes_per_second));
  return text;
}

void print_sessions(const std::vector<legs::NodeSessionStatus>& sessions) {
  if (sessions.empty()) return print_out("no sessions\n");
  std::size_t width = std::string_view("coordinator").size();
  for (const legs::NodeSessionStatus& s : sessions) width = std::max(width, s.coordinator.size());
  print_out("sessions\n  {:>7}  {:<{}}  {:>5}  {:>7}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n", "session",
            "coordinator", width, "epoch", "experts", "batches", "rows", "pairs", "sent", "received", "compute",
            "data links");
  for (const legs::NodeSessionStatus& s : sessions)
    print_out("  {:>7}  {:<{}}  {:>5}  {:>7}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6} ms  {}\n", s.number,
              s.coordinator, width, s.epoch, s.experts, s.batches, s.rows, s.pairs, format_size(s.bytes_sent),
              format_size(s.bytes_received), s.compute_us / 1000, describe_links(s));
}

void print_table(const legs::NodeStatus& s) {
  print_out("{}  {}  terrace-node {}  boot {:016x}  numerics {}  isa {}\n", s.listen, s.state, s.version, s.boot_id,
            s.numerics_version, s.isa);
  print_out("memory  {} of {} reserved, {} in use, {} locked\n", format_size(s.memory_reserved),
            format_size(s.memory_budget), format_size(s.memory_used), format_size(s.memory_locked));
  for (const legs::NodeCardStatus& card : s.cards)
    print_out("card {}  {}  {} of {} reserved, {} in use\n", card.index, card.name, format_size(card.reserved),
              format_size(card.budget), format_size(card.used));
  print_out("threads {}  CPUs {}{}  waits {}  ({})\n", s.threads, fmt::join(s.cpus, ","), s.pinned ? ", pinned" : "",
            s.waiting, s.cpu_choice);
  print_out("confinement  {}\n",
            s.confinement.empty() ? "not told" : fmt::format("{}", fmt::join(s.confinement, "; ")));
  print_out("link    {}\n", s.link.empty() ? "not told" : s.link);
  print_out("kernels\n");
  for (const auto& [type, kernel] : s.kernels) print_out("  {:<6}  {}\n", type, kernel);
  print_sessions(s.sessions);
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
  if (o.node.size() != 1)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} nodes are given; status shows one, so name it: --node {}",
                                                          o.node.size(), o.node.front()));
  TERRACE_ASSIGN_OR_RETURN(auto credentials, load_credentials(o.security));
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<legs::NodeControl> control,
                           legs::make_grpc_node_control(o.node.front(), {}, std::move(credentials)));
  TERRACE_ASSIGN_OR_RETURN(const legs::NodeStatus status, control->status());
  if (o.json)
    print_json_line(to_json(status));
  else
    print_table(status);
  return {};
}

}  // namespace terrace::app
