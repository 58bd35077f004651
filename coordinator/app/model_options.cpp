#include "coordinator/app/model_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "common/base/console.h"
#include "common/base/log.h"
#include "common/base/program_options.h"
#include "common/threads/options.h"
#include "common/transport/address.h"
#include "common/transport/sealed/sealed.h"
#include "common/wire/messages.h"
#include "coordinator/legs/channel.h"
#include "coordinator/legs/dispatcher.h"

namespace terrace::app {
namespace {

constexpr const char* kDemoModel = "demo-story-42m-q4_k_m.gguf";

std::vector<std::filesystem::path> demo_places() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const std::filesystem::path bin = program.parent_path();
  return {bin / kDemoModel, bin / ".." / "share" / "terrace" / kDemoModel,
          bin / ".." / ".." / ".." / "deploy" / "demo" / kDemoModel};  // build/<preset>/bin in the source tree
}

Logger warnings_on_stderr() {
  return Logger::to_function(LogLevel::kWarn,
                             [](LogLevel, std::string_view text) { print_err("terrace: {}\n", text); });
}

}  // namespace

void add_file_options(OptionTable& table, ModelOptions* options) {
  table.group("Model");
  table.add("model", &options->model, "the GGUF file; of a split set the first shard")
      .short_name('m')
      .default_text("the demo model");
  table.add("quiet", &options->quiet, "no notes on stderr, only the result and errors");
}

void add_isa_option(OptionTable& table, std::optional<kernels::Isa>* isa) {
  table.add_choice("isa", isa, kernels::kIsaNames, "use exactly this instruction set; refused where the CPU lacks it")
      .default_text("the widest this CPU has");
}

void add_activations_option(OptionTable& table, ModelOptions* options) {
  table.group("Model");
  table.add_choice("activations", &options->activations,
                   {{"quantised", kernels::Activations::kQuantised}, {"f32", kernels::Activations::kF32}},
                   "f32 is for checking only: slow, and not with nodes");
}

void add_trace_option(OptionTable& table, ModelOptions* options) {
  table.add("trace", &options->trace, "write what each step and each leg did when, for ui.perfetto.dev; up to 1G")
      .value_name("FILE")
      .default_text("none");
}

void add_model_options(OptionTable& table, ModelOptions* options) {
  add_file_options(table, options);
  table.add("ctx-size", &options->context, "positions a sequence may have, 0: the model's; memory is taken as needed");
  table.add_choice("kv", &options->kv, {{"f16", kernels::KvType::kF16}, {"f32", kernels::KvType::kF32}},
                   "what keys and values are stored as");
  table.add("batch", &options->batch, "prompt tokens computed at once; the result does not depend on it")
      .range(1, 16384)
      .default_text("512; 4096 where a card computes whole steps of one sequence");
  table.group("Machines");
  table.add("node", &options->nodes, "a tier node that computes some of the experts").value_name("HOST:PORT");
  table.add("share", &options->share, "who owns which experts: host=0-15,box1:9000=16-31, or a JSON file")
      .value_name("SPEC|FILE")
      .default_text("even, by id order");
  table.add("plan", &options->plan, "a file of `terrace plan --out`: instead of --node and --share");
  security::add_security_options(table, &options->security);
  transport::add_link_options(table, &options->link);
  table
      .add("sockets", &options->sockets,
           "connections to each node for prompts, and as many for weights; more where one does not fill the link")
      .range(1, wire::kMostSockets);
  table
      .add("load-timeout", &options->load_timeout,
           "a node that takes its share and tells nothing of it for so long is given up, as one that is lost")
      .range(1e9L, 3600e9L);  // a second to an hour
  table
      .add("audit", &options->audit,
           "share of the nodes' work that is computed here too and compared: 1 all of it, before use; 0 none")
      .range(0, 1)
      .value_name("FRACTION")
      .default_text("1/4096");
  table.add_choice("overlap", &options->overlap,
                   {{"auto", arch::Overlap::kAuto}, {"on", arch::Overlap::kOn}, {"off", arch::Overlap::kOff}},
                   "take a step's rows in parts, one computed here while nodes have the others; the result does not "
                   "depend on it");
  table
      .add("ram", &options->ram,
           "memory for this machine's part; more than there is: weights are read from the file again and again")
      .range(kLeastRam, kMostRam)
      .default_text("what is available");
  kernels::add_card_options(table, &options->card, kernels::MostCards::kSeveral);
  add_cpu_options(table, &options->threads, &options->cpu_list);
  add_isa_option(table, &options->isa);
}

Status check(const ModelOptions& options) {
  if (!options.plan.empty() && (!options.nodes.empty() || !options.share.empty()))
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--plan {} says which nodes own which experts; leave out --node and --share, or make another "
                    "plan with them",
                    options.plan.string()));
  TERRACE_RETURN_IF_ERROR(security::check(options.security));
  TERRACE_RETURN_IF_ERROR(transport::check(options.link));
  std::vector<std::string> nodes = options.nodes;
  std::sort(nodes.begin(), nodes.end());
  if (const auto twice = std::adjacent_find(nodes.begin(), nodes.end()); twice != nodes.end())
    return Error(ErrorCode::kInvalidArgument, fmt::format("--node {} is given twice", *twice));
  if (std::find(nodes.begin(), nodes.end(), "host") != nodes.end())
    return Error(ErrorCode::kInvalidArgument,
                 "--node host: \"host\" is the name of this machine's own leg; write HOST:PORT");
  // Before a large model is opened for nothing.
  for (const std::string& node : nodes)
    if (const auto address = transport::parse_host_port(node); !address.ok()) return address.error().in("--node");
  if (options.activations == kernels::Activations::kF32 && (!nodes.empty() || !options.plan.empty()))
    return Error(
        ErrorCode::kInvalidArgument,
        "--activations f32 is for checking on one machine; nodes compute by the contract only: leave out --node");
  if (options.activations == kernels::Activations::kF32 && options.card.any())
    return Error(ErrorCode::kInvalidArgument,
                 "--activations f32 is for checking on the CPU; cards compute by the contract only: leave out --gpu");
  if (const auto orders = kernels::read_orders(options.card); !orders.ok()) return orders.error();
  transport::prepare_link(options.link, options.nodes.empty() ? "" : options.nodes.front());
  return {};
}

Result<std::shared_ptr<security::Credentials>> load_credentials(const security::SecurityOptions& options,
                                                                const std::optional<Logger>& log) {
  if (options.any_credentials()) legs::silence_grpc_log();
  return security::Credentials::load(options, security::Role::kCoordinator, log ? *log : warnings_on_stderr());
}

Result<std::shared_ptr<transport::Transport>> open_link(const transport::LinkOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(auto link, transport::make_transport(options, warnings_on_stderr()));
  return std::shared_ptr<transport::Transport>(std::make_shared<transport::SealedTransport>(std::move(link)));
}

Result<legs::NodeSessionOptions> session_options(const ModelOptions& options, std::string coordinator,
                                                 Waiting waiting) {
  TERRACE_RETURN_IF_ERROR(transport::check_busy_poll(options.link, waiting));
  legs::NodeSessionOptions session;
  session.coordinator = std::move(coordinator);
  session.link = transport::name(options.link.link);
  session.max_rows = prompt_rows(options);
  session.range_rows = legs::kPromptRangeRows;
  session.sockets = options.sockets;
  session.waiting = waiting;
  session.seal = security::link_security(options.security) == security::LinkSecurity::kSealed;
  session.busy_poll = std::chrono::microseconds(options.link.busy_poll);
  return session;
}

Result<std::filesystem::path> model_file(const ModelOptions& options) {
  if (!options.model.empty()) return options.model;
  std::error_code error;
  for (const std::filesystem::path& place : demo_places()) {
    if (!std::filesystem::exists(place, error)) continue;
    const std::filesystem::path demo = std::filesystem::weakly_canonical(place, error);
    const std::string note = fmt::format("no --model given, using the demo model {}", demo.string());
    if (options.log && options.notes_in_log)
      options.log->info("{}", note);
    else if (!options.quiet)
      print_err("terrace: {}\n", note);
    return demo;
  }
  return Error(ErrorCode::kNotFound, fmt::format("no --model given, and the demo model {} is neither beside this "
                                                 "program nor in its source tree; give --model FILE",
                                                 kDemoModel));
}

}  // namespace terrace::app
