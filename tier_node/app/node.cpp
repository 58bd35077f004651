#include "tier_node/app/node.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/arena/page_pool.h"
#include "common/base/console.h"
#include "common/base/machine_limits.h"
#include "common/base/stop_signal.h"
#include "common/metrics/exposer/exposer.h"
#include "common/security/credentials.h"
#include "common/security/sha_instructions.h"
#include "common/threads/background.h"
#include "common/threads/cpus.h"
#include "common/threads/pool.h"
#include "common/transport/sealed/sealed.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/registry/registry.h"
#include "kernels/selftest/selftest.h"
#include "tier_node/app/budget.h"
#include "tier_node/app/card.h"
#include "tier_node/app/listen_address.h"
#include "tier_node/app/model_path.h"
#include "tier_node/app/privileges.h"
#include "tier_node/metrics/metrics.h"
#include "tier_node/service/control_server.h"
#include "tier_node/service/data_keys.h"
#include "tier_node/service/data_server.h"

namespace terrace::node {
namespace {

// How long sessions may go on after the first signal.
constexpr std::chrono::milliseconds kDrainTime{3'000};

// A share that does not fit is refused when it is asked for; this says it while somebody looks.
void warn_of_budget(const Budget& budget, const Logger& log) {
  if (budget.bytes > budget.available)
    log.warn("a memory budget of {} is more than the {} that are available; shares beyond that will be refused",
             format_size(budget.bytes), format_size(budget.available));
  if (budget.bytes < kSmallRam)
    log.warn(
        "a memory budget of {} is small: windows and scratch of one session take some tens of MB, and what is left "
        "for experts may be nothing",
        format_size(budget.bytes));
}

// Weight type -> kernel, of every type this machine computes with.
Result<std::map<std::string, std::string>> choose_kernels(const Machine& machine) {
  std::map<std::string, std::string> chosen;
  std::set<TensorType> types;
  for (const kernels::WeightKernels& variant : kernels::all_weight_kernels()) types.insert(variant.type);
  for (const TensorType type : types) {
    TERRACE_ASSIGN_OR_RETURN(const auto kernels, kernels::select_weight_kernels(type, machine.cpu, machine.isa));
    chosen[std::string(info(type).name)] = kernels.kernel_name;
  }
  return chosen;
}

Result<NodeInfo> describe(const Machine& machine, const kernels::Ops& ops, const CpuChoice& cpus) {
  NodeInfo node;
  TERRACE_ASSIGN_OR_RETURN(node.kernels, choose_kernels(machine));
  node.isa = kernels::name(ops.isa);
  node.cpus = cpus;
  utsname system{};
  if (uname(&system) == 0) node.machine = system.machine;
  return node;
}

// How much of the experts that sessions reserve for cannot be swapped out; `status` shows what is locked now.
void log_lock_limit(std::uint64_t limit, const Budget& budget, const Logger& log) {
  if (limit >= budget.bytes)
    log.info("memory lock: all experts");
  else
    log.info("memory lock: as much as the limit of {} allows, the rest may be swapped out (ulimit -l, LimitMEMLOCK=)",
             format_size(limit));
}

void log_start(const NodeInfo& node, const Machine& machine, const Budget& budget, const Logger& log) {
  log.info("instruction set {}{}; this CPU has {}", node.isa, machine.isa ? " (--isa)" : "", machine.cpu.describe());
  for (const auto& [type, kernel] : node.kernels) log.info("kernel for {}: {}", type, kernel);
  log.info("memory budget {} ({})", format_size(budget.bytes), budget.why);
  warn_of_budget(budget, log);
  log.info("{}", node.cpus.describe());
  log.info("confinement: {}", fmt::join(node.confinement, "; "));
}

Status self_check(const Machine& machine, const Logger& log) {
  const auto rows = kernels::run_selftest(machine.cpu);
  TERRACE_RETURN_IF_ERROR(kernels::check(rows));
  log.info("self check: {} of {} equal to the contract", rows.size(), rows.size());
  return {};
}

Result<std::optional<OwnModel>> open_own_model(const NodeOptions& options, const std::filesystem::path& cache_dir,
                                               Parallel& parallel, const Logger& log) {
  if (options.model.empty()) return std::optional<OwnModel>();
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path path, model_path(options.model, options.model_dir));
  TERRACE_ASSIGN_OR_RETURN(OwnModel own, OwnModel::open(path, cache_dir, parallel));
  if (!own.cache_note().empty()) log.warn("{}", own.cache_note());
  log.info("own model {}: {} of experts, manifest {}", own.path(), format_size(own.total_bytes()),
           security::to_hex(own.hash()));
  return std::optional<OwnModel>(std::move(own));
}

Result<std::uint16_t> choose_data_port(const NodeOptions& options, const ListenAddress& listen) {
  if (options.data_port) return *options.data_port;
  if (listen.port == 0) return std::uint16_t{0};  // both are the system's choice
  if (listen.port == 65535)
    return Error(ErrorCode::kInvalidArgument, "--listen with port 65535 leaves no port + 1 for data; give --data-port");
  return static_cast<std::uint16_t>(listen.port + 1);
}

// Lets sessions end, then ends them.
void drain(SessionTable& sessions, ControlServer& control, const Logger& log) {
  sessions.drain();
  control.announce_drain();
  const std::size_t open = sessions.all().size();
  if (open > 0) log.info("draining: {} sessions have {} ms to end", open, kDrainTime.count());
  if (!sessions.wait_drained(kDrainTime)) sessions.end_all(Error(ErrorCode::kPeerGone, "this node is shutting down"));
}

// Where the node is reached.
struct Addresses {
  ListenAddress control;
  std::uint16_t data_port = 0;  // 0: the system's choice
  std::optional<ListenAddress> metrics;
};

Result<Addresses> choose_addresses(const NodeOptions& options) {
  Addresses addresses;
  if (options.security.any_credentials()) {
    TERRACE_ASSIGN_OR_RETURN(addresses.control, resolve_address("--listen", options.listen));
  } else {
    TERRACE_ASSIGN_OR_RETURN(
        addresses.control, resolve_loopback("--listen", options.listen,
                                            "beyond loopback a node needs credentials: give --secret-file, or --cert, "
                                            "--key and --ca, or listen on 127.0.0.1"));
  }
  TERRACE_ASSIGN_OR_RETURN(addresses.data_port, choose_data_port(options, addresses.control));
  if (!options.metrics.empty()) {
    TERRACE_ASSIGN_OR_RETURN(addresses.metrics,
                             resolve_loopback("--metrics", options.metrics,
                                              "metrics are served to everybody who asks, so on loopback alone"));
  }
  return addresses;
}

// Null: none are asked for.
Result<std::unique_ptr<metrics::Exposer>> serve_metrics(const Addresses& addresses, SessionTable& sessions,
                                                        const Logger& log) {
  if (!addresses.metrics) return std::unique_ptr<metrics::Exposer>();
  TERRACE_ASSIGN_OR_RETURN(auto exposer,
                           metrics::Exposer::start(addresses.metrics->host, addresses.metrics->port, [&sessions] {
                             std::vector<metrics::Family> families = node_families(sessions);
                             for (metrics::Family& family : metrics::process_families())
                               families.push_back(std::move(family));
                             return families;
                           }));
  log.info("metrics on http://{}/metrics", exposer->address());
  return exposer;
}

// The model's folder, of each shard where links lead, certificates that may be replaced, and the cache of manifests.
FileNeeds file_needs(const NodeOptions& options, const std::filesystem::path& cache_dir) {
  FileNeeds needs;
  if (options.card.any()) needs.all_because = "the driver of --gpu opens files of its own";
  if (!options.link.ucx_rdma.empty()) needs.all_because = "the drivers of --ucx-rdma open devices of their own";
  needs.read = system_files();
  std::error_code ignored;
  const auto read_folder_of = [&](const std::filesystem::path& file) {
    if (file.empty()) return;
    needs.read.push_back(std::filesystem::absolute(file, ignored).parent_path());
    needs.read.push_back(std::filesystem::weakly_canonical(file, ignored).parent_path());
  };
  for (const auto& file : {options.security.certificate, options.security.key, options.security.authority})
    read_folder_of(file);
  if (options.model.empty()) return needs;
  if (options.model_dir.empty())
    read_folder_of(options.model);
  else
    needs.read.push_back(options.model_dir);
  if (cache_dir.empty()) return needs;
  std::filesystem::create_directories(cache_dir, ignored);  // that it cannot be is told when it is to be used
  needs.write.push_back(cache_dir);
  return needs;
}

const char* what_coordinators_need(const security::Credentials* credentials) {
  if (credentials == nullptr) return "no credentials";
  return credentials->by_secret() ? "the same secret" : "a certificate of --ca";
}

// Null: the thread of decode batches reads weights as well. A further thread would put one that computes aside where no
// CPU is left for it (docs/adr/0030), and connections of ucx share what moves their bytes.
std::optional<Background> weights_thread(const transport::LinkOptions& link, const Background& background) {
  const bool apart = link.link == transport::LinkKind::kTcp && !background.cpus.empty();
  return apart ? std::optional(background) : std::nullopt;
}

Status serve(SessionTable& sessions, SlabLoader& loader, Parallel& parallel, const kernels::Ops& ops,
             kernels::ExpertCard* card, NodeInfo node, const Addresses& addresses,
             const std::shared_ptr<transport::Transport>& link, const transport::LinkOptions& link_options,
             const Background& background, const std::shared_ptr<security::Credentials>& credentials, StopSignal& stop,
             const ServiceManager& manager, const Logger& log) {
  TERRACE_ASSIGN_OR_RETURN(const auto exposer, serve_metrics(addresses, sessions, log));
  transport::SealedTransport transport(link, data_keys(sessions));
  TERRACE_ASSIGN_OR_RETURN(const auto data,
                           DataServer::start({transport, sessions, loader, parallel, ops, log, node.cpus.waiting, card,
                                              true, weights_thread(link_options, background)},
                                             addresses.control.with_port(addresses.data_port),
                                             {.busy_poll = std::chrono::microseconds(link_options.busy_poll)}, {}));
  if (!node.cpus.pinned.empty()) TERRACE_RETURN_IF_ERROR(data->pin_compute_thread({node.cpus.pinned.front()}));
  sessions.on_change([&sessions, &stop, server = data.get()] {
    server->wake();
    if (sessions.drained()) stop.notify();
  });
  node.data_port = data->port();
  ControlOptions control_options;
  control_options.log = log;
  control_options.credentials = credentials;
  TERRACE_ASSIGN_OR_RETURN(const auto control, ControlServer::start(addresses.control.with_port(addresses.control.port),
                                                                    sessions, loader, node, control_options));
  if (has_root_rights()) log.info("running as root, whose rights a node does not need; another user is safer");
  log.info("data port {} by {}; coordinators need {}", data->port(), node.link,
           what_coordinators_need(credentials.get()));
  print_err("listening on {}\n", control->address());
  warn_if_failed(manager.ready(), log);

  if (stop.wait()) {
    log.info("signal received");
    stop.restore();
  }
  warn_if_failed(manager.stopping(), log);
  drain(sessions, *control, log);
  sessions.on_change([] {});
  return {};
}

}  // namespace

Status run_node(const NodeOptions& options, const std::filesystem::path& cache_dir, const ServiceManager& manager,
                const Logger& log) {
  TERRACE_RETURN_IF_ERROR(check(options.card));
  // Before rights are given up: secrets may be another user's, names are looked up by files of the system, and the
  // limit of locked memory is raised.
  TERRACE_ASSIGN_OR_RETURN(const auto credentials,
                           security::Credentials::load(options.security, security::Role::kNode, log));
  TERRACE_ASSIGN_OR_RETURN(const Addresses addresses, choose_addresses(options));
  TERRACE_RETURN_IF_ERROR(transport::check(options.link));
  transport::prepare_link(options.link, addresses.control.host);
  const std::uint64_t lock_limit = arena::raise_lock_limit();
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::string> confinement,
                           give_up_privileges(file_needs(options, cache_dir)));
  TERRACE_ASSIGN_OR_RETURN(const auto link, transport::make_transport(options.link, log));
  // Before memory is counted: where a card's memory is the host's, both are one budget.
  TERRACE_ASSIGN_OR_RETURN(const NodeCard card, open_card(options.card, log));
  const Machine machine{kernels::detect_cpu_features(), options.isa, card.card.get()};
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(machine.cpu, machine.isa));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t available, memory_available());
  TERRACE_ASSIGN_OR_RETURN(const Budget budget, choose_budget(options, card.card.get(), available));
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus,
                           choose_cpus(cpus_of_this_machine(), {options.threads, options.cpu_list}));
  TERRACE_RETURN_IF_ERROR(transport::check_busy_poll(options.link, cpus.waiting));
  ThreadAffinity on_cpu_list;  // of this thread; all that are started here inherit it
  if (options.cpu_list) {
    TERRACE_ASSIGN_OR_RETURN(on_cpu_list, ThreadAffinity::confine(cpus.usable));
  }
  TERRACE_ASSIGN_OR_RETURN(const auto pool, Pool::create(cpus));
  TERRACE_ASSIGN_OR_RETURN(NodeInfo node, describe(machine, ops, cpus));
  if (card.card) node.card = card.card->facts();
  node.confinement = confinement;
  node.link_kind = transport::name(options.link.link);
  node.link = transport::describe(options.link);
  log_start(node, machine, budget, log);
  log_lock_limit(lock_limit, budget, log);
  log.info("{} descriptors for connections and files", raise_descriptor_limit());
  TERRACE_RETURN_IF_ERROR(self_check(machine, log));
  TERRACE_ASSIGN_OR_RETURN(const auto own, open_own_model(options, cache_dir, *pool, log));
  // From here on signals are read, not obeyed at once: hashing a large file takes minutes, and must end with Ctrl-C.
  TERRACE_ASSIGN_OR_RETURN(const auto stop, StopSignal::create());

  arena::SlabStore store({budget.bytes, [] { return memory_available(); }});
  SessionOptions session_options;
  session_options.machine = machine;
  session_options.card_store = card.store.get();
  session_options.limits.n_workers = pool->n_workers();
  session_options.limits.seal = security::link_security(options.security) == security::LinkSecurity::kSealed;
  TERRACE_ASSIGN_OR_RETURN(const auto sessions, SessionTable::create(store, session_options, log));
  const unsigned receivers = SlabReceiver::threads_for(cpus.usable.size(), security::has_sha_instructions());
  const Background background = choose_background(cpus);
  log.info("weights: {}hashed by {}, {}",
           weights_thread(options.link, background) ? "read by a thread of their own, " : "", receivers,
           background.describe());
  TERRACE_ASSIGN_OR_RETURN(const auto loader, SlabLoader::make(own ? &*own : nullptr, log, receivers, background));
  const Status served = serve(*sessions, *loader, *pool, ops, card.card.get(), node, addresses, link, options.link,
                              background, credentials, *stop, manager, log);
  if (served.ok()) log.info("stopped");
  return served;
}

}  // namespace terrace::node
