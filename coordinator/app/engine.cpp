#include "coordinator/app/engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "common/base/console.h"
#include "common/base/machine_identity.h"
#include "common/base/units.h"
#include "common/manifest/cache.h"
#include "common/security/sha256.h"
#include "common/threads/background.h"
#include "common/threads/pool.h"
#include "common/threads/start.h"
#include "common/transport/pacing.h"
#include "coordinator/app/card_legs.h"
#include "coordinator/app/overlap_note.h"
#include "coordinator/app/placement.h"
#include "coordinator/app/recorded_experts.h"
#include "coordinator/app/rejoining_nodes.h"
#include "coordinator/arch/architectures.h"
#include "coordinator/legs/auditor.h"
#include "coordinator/legs/backstop.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/legs/file_slabs.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/out_leg.h"
#include "coordinator/legs/slab_prefetch.h"
#include "coordinator/legs/slab_reader.h"
#include "coordinator/legs/supervisor.h"
#include "coordinator/planner/heirs.h"
#include "coordinator/planner/replan.h"
#include "coordinator/serve/trace/recorder.h"
#include "coordinator/serve/trace/traced.h"
#include "coordinator/terminal/notes.h"
#include "coordinator/text/vocabulary.h"
#include "kernels/cpu/isa.h"
#include "kernels/registry/registry.h"

namespace terrace::app {
namespace {

// "Q4_K dot_rows_q4_k_avx2, ...": of every weight type in the file that this machine computes with.
Result<std::string> kernel_names(const gguf::File& file, const kernels::CpuFeatures& cpu,
                                 std::optional<kernels::Isa> forced) {
  std::set<TensorType> types;
  for (const gguf::TensorInfo& tensor : file.tensors())
    if (kernels::is_supported(tensor.type)) types.insert(tensor.type);
  std::string names;
  for (const TensorType type : types) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::WeightKernels chosen, kernels::select_weight_kernels(type, cpu, forced));
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", info(type).name, chosen.kernel_name);
  }
  return names;
}

std::string coordinator_name() {
  const std::string host = machine_name();
  return fmt::format("{} pid {}", host.empty() ? "?" : host, getpid());
}

// What ends the start says that the set-up is wrong; a node that goes away, or fails, is computed for as it would be
// later, and tried again. That it was there, and has room for its share, the placement has asked before.
bool is_loss(const Error& why) {
  switch (why.code()) {
    case ErrorCode::kPeerGone:
    case ErrorCode::kDeadline:
    case ErrorCode::kCorrupt:
    case ErrorCode::kBusy:
    case ErrorCode::kOutOfMemory:
      return true;
    default:
      return false;
  }
}

terminal::NotesOptions notes_of(const ModelOptions& options, const Environment& environment) {
  terminal::NotesOptions notes = terminal::notes_on_stderr(options.quiet, environment);
  if (options.log && options.notes_in_log)
    notes.line = [log = *options.log](const std::string& line) { log.info("{}", line); };
  return notes;
}

}  // namespace

// In the order in which they depend on each other; destroyed in reverse.
struct Engine::Parts {
  Parts(CpuChoice chosen, gguf::File opened, terminal::NotesOptions notes_options)
      : cpus(std::move(chosen)), file(std::move(opened)), notes(std::move(notes_options)) {}

  CpuChoice cpus;
  ThreadAffinity on_cpu_list;  // of the thread that opens; all that are started here inherit it
  gguf::File file;
  terminal::Notes notes;
  std::optional<Logger> log;  // ModelOptions::log
  kernels::CpuFeatures cpu = kernels::detect_cpu_features();
  std::unique_ptr<Pool> pool;
  kernels::Ops ops;
  manifest::ModelExperts experts;
  std::optional<text::Tokenizer> tokenizer;
  std::unique_ptr<legs::FileSlabs> slabs;
  std::vector<kernels::ExpertKernels> kernels;
  std::optional<manifest::Manifest> manifest;  // only with nodes: hashing a large file takes minutes
  std::optional<legs::SessionModel> session_model;
  std::shared_ptr<security::Credentials> credentials;  // of the links to nodes; null: none
  std::shared_ptr<transport::Transport> transport;
  legs::NodeSessionOptions session_options;
  std::chrono::milliseconds load_timeout{};
  std::vector<std::uint64_t> link_rates;  // [nodes] measured when their last sessions had begun; 0: none
  // As they were opened, null: lost before it was ready; the supervisor has them afterwards.
  std::vector<std::shared_ptr<legs::NodeSession>> nodes;
  kernels::OpenedCards cards;                    // with --gpu
  std::vector<std::shared_ptr<legs::Leg>> legs;  // host first, cards last; a node's holds its session
  std::unique_ptr<serve::TraceRecorder> trace;   // of --trace; null: nothing below is traced
  legs::LegBoard board;
  std::unique_ptr<legs::SlabPrefetch> prefetch;  // with nodes
  std::unique_ptr<legs::Backstop> backstop;      // with nodes
  std::unique_ptr<legs::Auditor> auditor;        // with nodes; null: nothing is audited
  std::unique_ptr<legs::Dispatcher> dispatcher;
  std::unique_ptr<RecordedExperts> recorded;  // with ModelOptions::records_experts
  planner::HeirTerms heirs;
  std::optional<planner::StatedPrediction> stated;  // by the plan file
  std::unique_ptr<legs::Supervisor> supervisor;     // with more legs than the host
  arch::TrunkOptions trunk_options;
  std::unique_ptr<arch::Trunk> trunk;
  std::unique_ptr<serve::TracedTrunk> traced_trunk;

  void open_auditor(double fraction);
  Status open_manifest(const std::filesystem::path& cache_dir);
  Status open_trunk();
  Status open_nodes(const ModelOptions& options, Placement& placement);
  Status open_backstop();
  std::shared_ptr<legs::Leg> host_leg(const legs::OwnerTable& owners);
  // What the dispatcher hands batches to: `leg` as it is, or traced. place: in the owner table.
  std::shared_ptr<legs::Leg> as_dispatched(std::shared_ptr<legs::Leg> leg, std::size_t place);
  std::shared_ptr<const legs::Epoch> first_epoch(const legs::OwnerTable& planned);
  Status start_supervisor(const legs::OwnerTable& planned, const legs::Epoch& first);
  RejoiningNodes rejoining() const {
    return {credentials, *transport, *session_model, session_options, cpus, load_timeout};
  }
  Result<std::unique_ptr<legs::NodeSession>> open_node(std::unique_ptr<legs::NodeControl> control,
                                                       const legs::OwnerTable& owners, std::size_t leg);
};

Engine::Engine() = default;
Engine::~Engine() = default;

arch::Trunk& Engine::trunk() {
  if (parts_->traced_trunk) return *parts_->traced_trunk;
  return *parts_->trunk;
}

Status Engine::end_trace() {
  if (!parts_->trace) return {};
  TERRACE_RETURN_IF_ERROR(parts_->trace->close());
  if (const std::uint64_t dropped = parts_->trace->dropped())
    parts_->notes.print("the trace had no room for {} spans more", dropped);
  return {};
}

const kernels::Ops& Engine::ops() const { return parts_->ops; }
Parallel& Engine::parallel() { return *parts_->pool; }
const CpuChoice& Engine::cpus() const { return parts_->cpus; }
Result<ThreadAffinity> Engine::pin_step_thread() const { return parts_->pool->pin_caller(); }
const legs::LegBoard& Engine::board() const { return parts_->board; }
const legs::Dispatcher& Engine::dispatcher() const { return *parts_->dispatcher; }
RecordedExperts* Engine::recorded() { return parts_->recorded.get(); }
Engine::Made Engine::made_of() const {
  const kernels::ExpertCard* const first_card =
      parts_->cards.cards.empty() ? nullptr : parts_->cards.cards.front().get();
  return {parts_->file, parts_->trunk_options, parts_->kernels, parts_->slabs->lookup(), first_card, parts_->stated};
}

Result<text::Tokenizer> open_tokenizer(const gguf::File& file, bool quiet) {
  TERRACE_ASSIGN_OR_RETURN(text::Vocabulary vocabulary, text::vocabulary_from_gguf(file));
  auto tokenizer = text::Tokenizer::make(std::move(vocabulary));
  if (!tokenizer.ok()) return tokenizer.error().in(file.path().string());
  for (const std::string& note : tokenizer->notes())
    if (!quiet) print_err("terrace: {}: {}\n", file.path().string(), note);
  return tokenizer;
}

Result<const text::Tokenizer*> Engine::tokenizer() {
  if (!parts_->tokenizer) {
    TERRACE_ASSIGN_OR_RETURN(parts_->tokenizer, open_tokenizer(parts_->file, true));
    for (const std::string& note : parts_->tokenizer->notes()) parts_->notes.print("{}", note);
  }
  return &*parts_->tokenizer;
}

Status Engine::Parts::open_manifest(const std::filesystem::path& cache_dir) {
  auto task = notes.begin("hashing experts");
  const auto progress = [&](std::uint64_t done, std::uint64_t total) { task->update(done, total); };
  TERRACE_ASSIGN_OR_RETURN(manifest::LoadedManifest loaded, manifest::load(file, experts, cache_dir, *pool, progress));
  task.reset();
  if (!loaded.cache_note.empty()) notes.print("{}", loaded.cache_note);
  manifest = std::move(loaded.manifest);
  session_model.emplace(legs::SessionModel{*manifest, manifest::serialize(*manifest), kernels, slabs->lookup(), ops});
  return {};
}

Result<std::unique_ptr<legs::NodeSession>> Engine::Parts::open_node(std::unique_ptr<legs::NodeControl> control,
                                                                    const legs::OwnerTable& owners, std::size_t leg) {
  const std::string address = control->address();
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeSession> session,
                           legs::NodeSession::open(std::move(control), *transport, *session_model, session_options));
  auto task = notes.begin(address);
  TERRACE_RETURN_IF_ERROR(session->take_share(owners, leg, [&](const legs::ShareProgress& progress) {
    task->update(std::max(progress.bytes_sent, progress.bytes_ready), progress.bytes_total);
  }));
  task.reset();
  notes.print("{}: ready, {} slabs{}, {} sent", address, owners.n_slabs(leg),
              session->node_has_model() ? " from its own file" : "",
              format_size(session->leg().counters().weight_bytes_sent));
  if (session_options.sockets != 1)
    notes.print("{}: {} connections for prompts, and as many for weights", address, session->sockets());
  if (const std::uint64_t rate = session->link_rate().measured(); rate > 0)
    notes.print("{}: takes {}/s; prompts and weights get {} % of it while tokens are made", address, format_size(rate),
                transport::kPacedShare * 100);
  return session;
}

Status Engine::Parts::open_trunk() {
  std::unique_ptr<terminal::Notes::Task> task;
  if (trunk_options.on_card) {
    task = notes.begin("the trunk to the card");
    trunk_options.on_card_progress = [&](std::uint64_t done, std::uint64_t total) { task->update(done, total); };
  }
  legs::RoutedExperts& routed = recorded ? static_cast<legs::RoutedExperts&>(*recorded) : *dispatcher;
  auto made = arch::make_trunk(file, trunk_options, routed, *pool);
  trunk_options.on_card_progress = {};
  if (!made.ok()) return made.error();
  trunk = std::move(*made);
  return {};
}

// What checks the nodes' work.
void Engine::Parts::open_auditor(double fraction) {
  const auto slab_id = [this](std::uint32_t layer, std::uint16_t expert) {
    return security::to_hex(manifest->slab_id(layer, expert));
  };
  auditor = std::make_unique<legs::Auditor>(legs::AuditOptions{.fraction = fraction},
                                            legs::AuditModel{kernels, slabs->lookup(), slab_id}, *pool, ops);
  auditor->set_between_slices([this] { dispatcher->progress(); });
}

// What computes the experts of a node that is late or gone.
Status Engine::Parts::open_backstop() {
  // Of a lost or suspect node, where it was brought into memory.
  const auto in_memory = [this](std::uint32_t layer, std::uint16_t expert) {
    return prefetch->in_memory(layer, expert) ? std::optional(slabs->view(layer, expert)) : std::nullopt;
  };
  TERRACE_ASSIGN_OR_RETURN(backstop, legs::Backstop::open({.reader = legs::open_slab_reader(file, experts),
                                                           .kernels = kernels,
                                                           .n_experts = experts.n_experts,
                                                           .top_k = experts.top_k,
                                                           .parallel = *pool,
                                                           .ops = ops,
                                                           .in_memory = in_memory}));
  notes.print("backstop: {} set aside, reads the file at {}/s, {}", format_size(backstop->memory_bytes()),
              format_size(static_cast<std::uint64_t>(backstop->bytes_per_second())), backstop->describe());
  return {};
}

// All nodes at once, each by a thread of its own; the first error by the order of --node is told.
Status Engine::Parts::open_nodes(const ModelOptions& options, Placement& placement) {
  const std::size_t n = placement.controls.size();
  TERRACE_ASSIGN_OR_RETURN(transport, open_link(options.link));
  TERRACE_ASSIGN_OR_RETURN(session_options, app::session_options(options, coordinator_name(), cpus.waiting));
  load_timeout = std::chrono::ceil<std::chrono::milliseconds>(options.load_timeout);
  session_options.decode = std::make_shared<transport::DecodeActivity>();
  session_options.parallel = pool.get();
  session_options.background = choose_background(cpus);
  std::vector<std::optional<Result<std::unique_ptr<legs::NodeSession>>>> opened(n);
  const auto open = [&](std::size_t i) {
    const std::string address = placement.controls[i]->address();
    try {
      opened[i].emplace(open_node(std::move(placement.controls[i]), placement.owners, i + 1));
    } catch (const std::exception& thrown) {  // no thread, no memory: out of a thread's function it would end us
      opened[i].emplace(Error(ErrorCode::kOutOfMemory, fmt::format("{}: {}", address, thrown.what())));
    }
  };
  {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      auto started = start_thread("terrace-open", [&open, i] { open(i); });
      if (started.ok())
        threads.push_back(std::move(*started));
      else
        opened[i].emplace(started.error().in(placement.owners.leg_name(i + 1)));
    }
    if (n > 0) open(n - 1);
    for (std::thread& thread : threads) thread.join();
  }
  for (std::size_t i = 0; i < n; ++i) {
    auto& node = *opened[i];
    if (!node.ok() && !is_loss(node.error())) return node.error();
    nodes.push_back(node.ok() ? std::move(*node) : nullptr);
    link_rates.push_back(nodes.back() ? nodes.back()->link_rate().measured() : 0);
    if (node.ok())
      legs.emplace_back(nodes.back(), &nodes.back()->leg());
    else
      legs.push_back(legs::make_out_leg(placement.owners.leg_name(i + 1), legs::LegKind::kNode, legs::LegState::kLost,
                                        node.error().text()));
  }
  return {};
}

// What does not fit is refused here, before a byte is hashed, read or sent.
Status Engine::open_legs(const ModelOptions& options, const std::filesystem::path& cache_dir, BeforeLoad before_load) {
  Parts& p = *parts_;
  TERRACE_ASSIGN_OR_RETURN(Placement placement, make_placement(p.file, options, p.cpu, p.pool->n_workers()));
  TERRACE_RETURN_IF_ERROR(placement.memory.status());
  TERRACE_RETURN_IF_ERROR(
      before_load(*this, placement.info, options.context == 0 ? placement.info.context : options.context));
  if (const auto room = placement.memory.room_for_positions; room && *room < placement.info.context)
    p.notes.print("the cache is taken as needed; there is memory for {} of the model's {} positions", *room,
                  placement.info.context);
  if (!options.trace.empty()) {
    TERRACE_ASSIGN_OR_RETURN(p.trace, serve::TraceRecorder::open(options.trace, placement.owners.leg_names()));
  }
  p.credentials = placement.credentials;
  p.experts = std::move(placement.experts);
  p.kernels = std::move(placement.kernels);
  p.trunk_options = placement.trunk;
  p.trunk_options.waiting = p.cpus.waiting;
  p.heirs = std::move(placement.heirs);
  p.stated = std::move(placement.stated);
  p.slabs = std::make_unique<legs::FileSlabs>(p.file, p.experts);
  p.legs.push_back(p.host_leg(placement.owners));
  if (!placement.nodes.empty()) {
    TERRACE_RETURN_IF_ERROR(p.open_manifest(cache_dir));
    TERRACE_RETURN_IF_ERROR(p.open_nodes(options, placement));
    TERRACE_ASSIGN_OR_RETURN(p.prefetch, legs::SlabPrefetch::start(p.slabs->lookup(), p.kernels, p.experts.n_experts,
                                                                   placement.memory.legs.front().room()));
    TERRACE_RETURN_IF_ERROR(p.open_backstop());
    if (options.audit > 0) p.open_auditor(options.audit);
  }
  p.cards = std::move(placement.cards);
  TERRACE_ASSIGN_OR_RETURN(auto card_legs, open_card_legs({placement, p.cards, p.kernels, p.experts.shift,
                                                           legs::file_part_reader(p.file, p.experts), *p.pool},
                                                          p.notes));
  for (auto& leg : card_legs) p.legs.push_back(std::move(leg));
  for (std::size_t i = 0; i < p.legs.size(); ++i) p.legs[i] = p.as_dispatched(p.legs[i], i);
  const auto first = p.first_epoch(placement.owners);
  p.dispatcher = std::make_unique<legs::Dispatcher>(legs::DispatcherParts{.epoch = first,
                                                                          .kernels = p.kernels,
                                                                          .top_k = p.experts.top_k,
                                                                          .parallel = *p.pool,
                                                                          .ops = p.ops,
                                                                          .backstop = p.backstop.get(),
                                                                          .board = &p.board,
                                                                          .auditor = p.auditor.get(),
                                                                          .waiting = p.cpus.waiting});
  if (options.records_experts)
    p.recorded = std::make_unique<RecordedExperts>(*p.dispatcher, placement.info.d_model, p.experts.top_k);
  if (p.legs.size() > 1) TERRACE_RETURN_IF_ERROR(p.start_supervisor(placement.owners, *first));
  p.legs.clear();  // the epoch has them
  return {};
}

std::shared_ptr<legs::Leg> Engine::Parts::host_leg(const legs::OwnerTable& owners) {
  auto leg = std::make_shared<legs::HostLeg>(owners, slabs->lookup(), kernels, *pool, ops);
  leg->set_meanwhile([this] { dispatcher->progress(); });
  return leg;
}

std::shared_ptr<legs::Leg> Engine::Parts::as_dispatched(std::shared_ptr<legs::Leg> leg, std::size_t place) {
  if (!trace) return leg;
  return std::make_shared<serve::TracedLeg>(std::move(leg), *trace, static_cast<std::uint32_t>(1 + place));
}

// As planned, or, when nodes were lost while they were loaded, as after a loss: the others know the planned number.
std::shared_ptr<const legs::Epoch> Engine::Parts::first_epoch(const legs::OwnerTable& planned) {
  std::vector<std::uint8_t> gone(legs.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) gone[i + 1] = nodes[i] == nullptr ? 1 : 0;
  if (std::ranges::count(gone, 1) == 0) return legs::make_epoch(planned, legs);
  const auto nobody_holds = [](std::size_t, std::uint32_t, std::uint16_t) { return false; };
  legs::Epoch first{planner::owners_without(planned, gone, planned.epoch() + 1, nobody_holds), legs, {}};
  first.acknowledged.assign(legs.size(), planned.epoch());
  first.legs[0] = as_dispatched(host_leg(first.owners), 0);
  prefetch->want(planned, first.owners, first.owners);
  return std::make_shared<const legs::Epoch>(std::move(first));
}

Status Engine::Parts::start_supervisor(const legs::OwnerTable& planned, const legs::Epoch& first) {
  std::vector<legs::Supervisor::Seat> seats;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const bool node = i > 0 && i <= nodes.size();
    seats.push_back({.name = legs[i]->name(),
                     .kind = legs[i]->kind(),
                     .leg = first.legs[i],
                     .member = node ? nodes[i - 1] : nullptr,
                     .lost_before = node && nodes[i - 1] == nullptr});
  }
  nodes.clear();
  legs::SupervisorHooks hooks;
  hooks.publish = [this](std::shared_ptr<const legs::Epoch> epoch) { dispatcher->publish(std::move(epoch)); };
  hooks.take_retired = [this] { return dispatcher->take_retired(); };
  hooks.replan = [planned](std::span<const std::uint8_t> gone, std::uint64_t epoch, legs::HoldsSlab holds) {
    return planner::owners_without(planned, gone, epoch, holds);
  };
  hooks.bequeath = [this, planned](std::span<const std::uint8_t> gone, std::uint64_t epoch, legs::HoldsSlab holds) {
    return planner::owners_with_heirs(planned, gone, epoch, heirs, holds);
  };
  hooks.take_further = [this](const legs::FurtherShare& share, std::stop_token stop, std::uint64_t& bytes_sent,
                              bool& wrong) {
    return rejoining().take_further(share, std::move(stop), bytes_sent, wrong);
  };
  hooks.host = [this](const legs::OwnerTable& owners) { return as_dispatched(host_leg(owners), 0); };
  if (prefetch)
    hooks.bring_near = [this, planned](const legs::OwnerTable& owners, const legs::OwnerTable& if_lost) {
      prefetch->want(planned, owners, if_lost);
    };
  hooks.open = [this](std::size_t leg, const legs::OwnerTable& owners, std::stop_token stop,
                      bool& wrong) -> Result<legs::OpenedMember> {
    try {
      TERRACE_ASSIGN_OR_RETURN(const std::shared_ptr<legs::NodeSession> session,
                               rejoining().open(leg, owners, link_rates[leg - 1], std::move(stop), wrong));
      return legs::OpenedMember{session, as_dispatched({session, &session->leg()}, leg)};
    } catch (const std::exception& thrown) {  // no thread, no memory: later, perhaps
      return Error(ErrorCode::kOutOfMemory, fmt::format("{}: {}", owners.leg_name(leg), thrown.what()));
    }
  };
  hooks.tell = [this](const std::string& line) { log ? log->warn("{}", line) : notes.print("{}", line); };
  TERRACE_ASSIGN_OR_RETURN(supervisor, legs::Supervisor::start(first, std::move(seats), board, std::move(hooks)));
  return {};
}

Result<std::unique_ptr<Engine>> Engine::open(const ModelOptions& options, const Environment& environment) {
  return open(options, environment, [](Engine&, const arch::ModelInfo&, std::uint32_t) { return Status(); });
}

Result<std::unique_ptr<Engine>> Engine::open(const ModelOptions& options, const Environment& environment,
                                             BeforeLoad before_load) {
  const auto begin = std::chrono::steady_clock::now();
  TERRACE_ASSIGN_OR_RETURN(CpuChoice cpus, choose_cpus(cpus_of_this_machine(), {options.threads, options.cpu_list}));
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path path, model_file(options));
  TERRACE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(path));
  std::unique_ptr<Engine> engine(new Engine());
  engine->model_name_ = path.filename().string();
  engine->parts_ = std::make_unique<Parts>(std::move(cpus), std::move(file), notes_of(options, environment));
  Parts& p = *engine->parts_;
  p.log = options.log;
  if (options.cpu_list) {
    TERRACE_ASSIGN_OR_RETURN(p.on_cpu_list, ThreadAffinity::confine(p.cpus.usable));
  }

  TERRACE_ASSIGN_OR_RETURN(p.ops, kernels::select_ops(p.cpu, options.isa));
  TERRACE_ASSIGN_OR_RETURN(p.pool, Pool::create(p.cpus));
  TERRACE_RETURN_IF_ERROR(engine->open_legs(options, cache_directory(environment), before_load));

  TERRACE_RETURN_IF_ERROR(p.open_trunk());
  if (p.trace) p.traced_trunk = std::make_unique<serve::TracedTrunk>(*p.trunk, *p.trace);
  p.notes.print("{}: {}, {} layers, {} experts, top {}; {} thread{}, {}", path.filename().string(),
                p.experts.architecture, p.experts.layers.size(), p.experts.n_experts, p.experts.top_k, p.cpus.n_threads,
                p.cpus.n_threads == 1 ? "" : "s", kernels::name(p.ops.isa));
  TERRACE_ASSIGN_OR_RETURN(const std::string kernels_used, kernel_names(p.file, p.cpu, options.isa));
  p.notes.print("kernels: {}", kernels_used);
  if (const std::string link = transport::describe(options.link); link != "tcp") p.notes.print("link: {}", link);
  if (const std::string note =
          overlap_note(p.trunk_options, p.experts, {p.dispatcher->computes_elsewhere(), p.dispatcher->all_on_card()});
      !note.empty())
    p.notes.print("overlap: {}", note);
  p.notes.print("{}", p.cpus.describe());
  engine->load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return engine;
}

std::filesystem::path cache_directory(const Environment& environment) {
  const auto cache = environment.get("XDG_CACHE_HOME");
  const auto home = environment.get("HOME");
  return manifest::default_cache_dir(cache ? cache->c_str() : nullptr, home ? home->c_str() : nullptr);
}

}  // namespace terrace::app
