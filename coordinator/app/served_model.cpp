#include "coordinator/app/served_model.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/version.h"
#include "common/gguf/bytes.h"
#include "common/gguf/file.h"
#include "common/manifest/cache.h"
#include "common/manifest/manifest.h"
#include "common/metrics/families.h"
#include "common/security/random.h"
#include "common/security/sha256.h"
#include "common/threads/background.h"
#include "common/threads/cpus.h"
#include "coordinator/app/commit.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/metrics/metrics.h"
#include "coordinator/text/jinja/template.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::app {

namespace {

// Ids and seeds: hashes of a key and a count. The system's randomness is asked once, for the key: who has no randomness
// does not get as far as listening, and no request can find it failing.
class RandomNumbers {
 public:
  static Result<std::shared_ptr<RandomNumbers>> make() {
    const auto numbers = std::make_shared<RandomNumbers>();
    TERRACE_RETURN_IF_ERROR(security::random_bytes(std::span(numbers->seed_).first(kKeyBytes)));
    return numbers;
  }
  // Any thread.
  std::uint64_t next() {
    auto input = seed_;
    const std::uint64_t count = count_.fetch_add(1);
    std::memcpy(input.data() + kKeyBytes, &count, sizeof count);
    const security::Sha256 hash = security::sha256(input);
    std::uint64_t number = 0;
    std::memcpy(&number, hash.data(), sizeof number);
    return number;
  }

 private:
  static constexpr std::size_t kKeyBytes = 32;
  std::array<std::byte, kKeyBytes + sizeof(std::uint64_t)> seed_{};  // the key, and room for the count
  std::atomic<std::uint64_t> count_ = 0;
};

}  // namespace

// In the order in which they depend on each other; destroyed in reverse.
struct ServedModel::Parts {
  std::string hash;
  std::shared_ptr<RandomNumbers> random;
  std::optional<text::jinja::Template> chat_template;
  sampler::GrammarCache grammars;
  serve::api::Context context;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<serve::Scheduler> scheduler;

  // What the file says, before anything is loaded. The engine opens it once more.
  Status read(const ServeOptions& options, const Logger& log);
  Status start(const ServeOptions& options, const Environment& environment, const Logger& log,
               const serve::http::AnswerBatch& answer_batch, const TrunkOf& trunk_of);
  void describe(const ServeOptions& options);
};

namespace {

std::string main_type(const gguf::File& file) {
  std::map<std::string_view, std::uint64_t> bytes;
  for (const gguf::TensorInfo& tensor : file.tensors()) bytes[info(tensor.type).name] += tensor.bytes;
  std::string_view most;
  for (const auto& [type, n] : bytes)
    if (most.empty() || n > bytes[most]) most = type;
  return std::string(most);
}

serve::api::ModelFacts facts(const gguf::File& file, const ServeOptions& options) {
  serve::api::ModelFacts facts;
  facts.name = options.alias.empty() ? file.path().filename().string() : options.alias;
  facts.path = file.path().string();
  facts.file_type = main_type(file);
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    facts.n_parameters += tensor.n_values();
    facts.size_bytes += tensor.bytes;
  }
  return facts;
}

// Names the weights' bytes as far as that goes without reading them all: what saved slots belong to.
Result<std::string> model_hash(const gguf::File& file) {
  TERRACE_ASSIGN_OR_RETURN(const std::string files, manifest::identity(file));
  return fmt::format("{}:{}", security::to_hex(manifest::header_hash(file)),
                     security::to_hex(security::sha256(gguf::as_bytes(files))));
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

// What Prometheus reads; no step waits for it.
serve::http::Reply metrics_reply(const serve::Scheduler& scheduler, const serve::Backend& backend) {
  std::vector<metrics::Family> families = serve::scheduler_families(scheduler.status());
  const auto add = [&](std::vector<metrics::Family> more) {
    for (metrics::Family& family : more) families.push_back(std::move(family));
  };
  if (backend.http_families) add(backend.http_families());
  add(metrics::process_families());
  serve::http::Reply reply;
  reply.content_type = metrics::kTextType;
  reply.body = metrics::to_text(families);
  // As llama-server's page has it: a scraper sees by it that counters began anew.
  if (const auto start = metrics::process_start_seconds())
    reply.headers.emplace_back("Process-Start-Time-Unix", fmt::format("{:.0f}", *start));
  return reply;
}

// Empty: anywhere.
Result<CpuSet> cpus_beside_steps(const ModelOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice choice,
                           choose_cpus(cpus_of_this_machine(), {options.threads, options.cpu_list}));
  if (choice.pinned.empty()) return options.cpu_list ? choice.usable : CpuSet();
  return terrace::cpus_beside_steps(choice);
}

}  // namespace

Result<std::unique_ptr<serve::http::Server>> start_server(serve::http::ServerOptions http, serve::http::Router router,
                                                          const ModelOptions& options) {
  TERRACE_ASSIGN_OR_RETURN(const CpuSet cpus, cpus_beside_steps(options));
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity confined, ThreadAffinity::confine(cpus));  // its threads inherit it
  return serve::http::Server::start(std::move(http), std::move(router));
}

ServedModel::ServedModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ServedModel::~ServedModel() = default;
serve::Scheduler& ServedModel::scheduler() { return *parts_->scheduler; }
Status ServedModel::end_trace() { return parts_->engine->end_trace(); }

Status ServedModel::Parts::read(const ServeOptions& options, const Logger& log) {
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(options.model.model));
  TERRACE_ASSIGN_OR_RETURN(const text::Vocabulary vocabulary, text::vocabulary_from_gguf(file));
  context.model = facts(file, options);
  TERRACE_ASSIGN_OR_RETURN(hash, model_hash(file));
  TERRACE_ASSIGN_OR_RETURN(random, RandomNumbers::make());
  context.chat_template_source = vocabulary.chat_template;
  auto compiled = text::jinja::Template::compile(vocabulary.chat_template);
  if (vocabulary.chat_template.empty()) {
    context.no_template =
        fmt::format("{} has no chat template; use /v1/completions or /completion", context.model.name);
  } else if (!compiled.ok()) {
    context.no_template = fmt::format("the chat template of {} does not work: {}; use /v1/completions or /completion",
                                      context.model.name, compiled.error().text());
  } else {
    chat_template = std::move(*compiled);
    context.chat_template = &*chat_template;
  }
  if (!context.no_template.empty()) log.warn("{}", context.no_template);
  return {};
}

Status ServedModel::Parts::start(const ServeOptions& options, const Environment& environment, const Logger& log,
                                 const serve::http::AnswerBatch& answer_batch, const TrunkOf& trunk_of) {
  const auto before_load = [&](Engine& opening, const arch::ModelInfo& info, std::uint32_t) -> Status {
    TERRACE_ASSIGN_OR_RETURN(context.tokenizer, opening.tokenizer());
    context.model.n_context_trained = info.context;
    context.model.n_embedding = info.d_model;
    return {};
  };
  ModelOptions model = options.model;
  model.streams = trunk_streams(options);
  TERRACE_ASSIGN_OR_RETURN(engine, Engine::open(model, environment, before_load));
  arch::Trunk* trunk = &engine->trunk();
  if (trunk_of) {
    TERRACE_ASSIGN_OR_RETURN(trunk, trunk_of(*engine));
  }

  serve::SchedulerOptions scheduling;
  scheduling.slots = options.slots;
  scheduling.queue_limit = options.queue;
  scheduling.chunk_rows = options.prompt_chunk;
  scheduling.resting_bytes = options.cache_ram.value;
  scheduling.model_hash = hash;
  scheduling.on_roll_back = [log](const Error& why, std::size_t n_ended) {
    log.error(
        "{}; what runs is computed again where it is not certain; replies that ended since the node's last clean "
        "audit and may be wrong: {}",
        why.text(), n_ended);
  };
  scheduling.on_step_failed = [log](const Error& why, std::size_t n_ended) {
    log.error("a step failed, and {} requests end with this error: {}", n_ended, why.text());
  };
  scheduling.before_telling = answer_batch.begin;
  scheduling.after_telling = answer_batch.end;
  scheduling.on_thread = [&e = *engine]() -> std::shared_ptr<void> {
    auto pinned = e.pin_step_thread();
    if (!pinned.ok()) return nullptr;  // it runs wherever the system puts it
    return std::make_shared<ThreadAffinity>(std::move(*pinned));
  };
  TERRACE_ASSIGN_OR_RETURN(scheduler, serve::Scheduler::make({*trunk, *context.tokenizer, engine->ops(),
                                                              engine->parallel(), &engine->board()},
                                                             std::move(scheduling)));
  return {};
}

void ServedModel::Parts::describe(const ServeOptions& options) {
  context.grammars = &grammars;
  context.context_tokens = scheduler->context();
  context.n_slots = options.slots;
  context.sampling = options.sampling;
  context.build = fmt::format("terrace-{}-{}", version(), commit());
  context.started = std::time(nullptr);
  context.slot_files = !options.slot_save_path.empty();
  context.unix_seconds = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  context.local_time = local_now;
  context.random = [random = random] { return random->next(); };
}

Result<std::unique_ptr<ServedModel>> ServedModel::load(const ServeOptions& options, const Environment& environment,
                                                       const Logger& log, serve::Backend& backend,
                                                       const TrunkOf& trunk_of) {
  auto parts = std::make_unique<Parts>();
  TERRACE_RETURN_IF_ERROR(parts->read(options, log));
  TERRACE_RETURN_IF_ERROR(parts->start(options, environment, log, backend.answer_batch, trunk_of));
  parts->describe(options);
  backend.context = &parts->context;
  backend.scheduler = parts->scheduler.get();
  backend.owners = [dispatcher = &parts->engine->dispatcher()] {
    auto epoch = dispatcher->latest();
    const legs::OwnerTable& owners = epoch->owners;
    return std::shared_ptr<const legs::OwnerTable>(std::move(epoch), &owners);
  };
  backend.expert_use = &parts->engine->dispatcher().use();
  backend.slot_dir = options.slot_save_path;
  backend.metrics = [scheduler = parts->scheduler.get(), &backend] { return metrics_reply(*scheduler, backend); };
  return std::unique_ptr<ServedModel>(new ServedModel(std::move(parts)));
}

}  // namespace terrace::app
