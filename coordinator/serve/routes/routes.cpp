#include "coordinator/serve/routes/routes.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/serve/api/generation.h"
#include "coordinator/serve/api/information.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/page/page.h"
#include "coordinator/serve/page/tiers.h"
#include "coordinator/serve/routes/generation_run.h"
#include "coordinator/serve/routes/health.h"
#include "coordinator/serve/routes/replies.h"

namespace terrace::serve {
namespace {

using http::Request;
using Runs = http::Route::Runs;
using SharedExchange = std::shared_ptr<http::Exchange>;

// What llama-server or the two APIs have and this server does not: 501, by name.
struct Missing {
  const char* method;
  const char* path;
  const char* what;
};
constexpr Missing kMissing[] = {
    {"POST", "/embedding", "embeddings"},
    {"POST", "/embeddings", "embeddings"},
    {"POST", "/v1/embeddings", "embeddings"},
    {"POST", "/rerank", "reranking"},
    {"POST", "/reranking", "reranking"},
    {"POST", "/v1/rerank", "reranking"},
    {"POST", "/v1/reranking", "reranking"},
    {"POST", "/infill", "infill"},
    {"POST", "/v1/chat/completions/control", "control of a running completion"},
    {"POST", "/v1/chat/completions/input_tokens", "input_tokens; /v1/messages/count_tokens counts"},
    {"POST", "/v1/responses/input_tokens", "input_tokens; /v1/messages/count_tokens counts"},
    {"GET", "/lora-adapters", "LoRA adapters"},
    {"POST", "/lora-adapters", "LoRA adapters"},
    {"POST", "/v1/audio/transcriptions", "audio"},
    {"POST", "/v1/audio/translations", "audio"},
    {"POST", "/v1/audio/speech", "audio"},
    {"POST", "/v1/images/generations", "images"},
    {"POST", "/v1/moderations", "moderation"},
    {"POST", "/v1/messages/batches", "batches of messages"},
    {"POST", "/props", "changing global properties"},
};

class Routes {
 public:
  explicit Routes(const Backend& backend) : backend_(backend) {}

  http::Router make() {
    add_page();
    add_health();
    add_information();
    add_generating();
    add_slots();
    add_missing();
    return std::move(router_);
  }

 private:
  using Answer = std::function<http::Reply(const Request&)>;

  void add(const char* method, const char* path, Answer answer, Runs runs = Runs::kWorker) {
    router_.add(method, path,
                {.handler = [answer = std::move(answer)](
                                const SharedExchange& exchange) { exchange->reply(answer(exchange->request())); },
                 .runs = runs});
  }

  // The page itself holds nothing of the model's or of anybody's: it is there without a key, which it asks for, and
  // while the model loads.
  void add_page() {
    http::Reply page;
    auto [html, policy] = page::make_page();
    page.content_type = "text/html; charset=utf-8";
    page.body = std::move(html);
    page.headers = {{"Content-Security-Policy", std::move(policy)},
                    {"Cache-Control", "no-cache"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cross-Origin-Opener-Policy", "same-origin"}};
    router_.add("GET", "/",
                {.handler = [page = std::move(page)](const SharedExchange& exchange) { exchange->reply(page); },
                 .runs = Runs::kIo,
                 .needs_key = false,
                 .while_unavailable = true});
    add("GET", "/tiers", [&b = backend_, start = std::chrono::steady_clock::now()](const Request& r) {
      const auto at = std::chrono::steady_clock::now() - start;
      http::Reply reply;
      reply.body =
          page::tiers_json(b.scheduler->status(), *b.owners(), r.query_value("experts") == "0" ? nullptr : b.expert_use,
                           std::chrono::duration_cast<std::chrono::milliseconds>(at));
      return reply;
    });
  }

  void add_health() {
    const auto open = [this](const char* path, bool while_unavailable, std::function<http::Reply()> answer) {
      router_.add(
          "GET", path,
          {.handler = [answer = std::move(answer)](const SharedExchange& exchange) { exchange->reply(answer()); },
           .runs = Runs::kIo,
           .needs_key = false,
           .while_unavailable = while_unavailable});
    };
    for (const char* path : {"/health", "/v1/health", "/health/ready"})
      open(path, false, [&b = backend_] { return health(b.scheduler->status()); });
    open("/health/live", true, [] {
      http::Reply reply;
      reply.body = R"({"status":"alive"})";
      return reply;
    });
  }

  void add_information() {
    using namespace api;
    const Backend& b = backend_;
    for (const char* path : {"/v1/models", "/models"})
      add("GET", path, [&b](const Request&) { return to_http(models(*b.context)); });
    add("GET", "/props", [&b](const Request&) { return to_http(props(*b.context)); });
    add(
        "GET", "/metrics", [&b](const Request&) { return b.metrics(); }, Runs::kIo);
    add("POST", "/tokenize", [&b](const Request& r) { return to_http(tokenize(r.body, *b.context)); });
    add("POST", "/detokenize", [&b](const Request& r) { return to_http(detokenize(r.body, *b.context)); });
    add("POST", "/apply-template", [&b](const Request& r) { return to_http(apply_template(r.body, *b.context)); });
    add("POST", "/v1/messages/count_tokens",
        [&b](const Request& r) { return to_http(count_tokens(r.body, *b.context)); });
  }

  void add_generating() {
    using enum api::Route;
    const std::pair<const char*, api::Route> generating[] = {
        {"/v1/chat/completions", kChatCompletions},
        {"/chat/completions", kChatCompletions},
        {"/v1/completions", kTextCompletions},
        {"/completion", kCompletion},
        {"/completions", kCompletion},
        {"/v1/responses", kResponses},
        {"/responses", kResponses},
        {"/v1/messages", kMessages},
    };
    for (const auto& [path, route] : generating)
      router_.add("POST", path, {.handler = [&b = backend_, kind = route](const SharedExchange& exchange) {
                    const Request& request = exchange->request();
                    api::ReadGeneration read = api::read_generation(kind, request.body, *b.context, request.id);
                    if (read.refusal) return exchange->reply(to_http(std::move(*read.refusal)));
                    run_generation(std::move(*read.generation), exchange, *b.scheduler);
                  }});
  }

  void add_slots() {
    add("GET", "/slots", [&b = backend_](const Request& r) {
      const auto fail = r.query_value("fail_on_no_slot");
      return to_http(api::slots(*b.context, b.scheduler->status(), fail && !fail->empty() && *fail != "0"));
    });
    add("POST", "/slots/{id}", [&b = backend_](const Request& r) {
      const auto read =
          api::read_slot_command(r.parameter("id"), r.query_value("action").value_or(""), r.body, *b.context);
      if (read.refusal) return to_http(*read.refusal);
      const auto done = carry_out(b, *read.command);
      return to_http(done.ok() ? api::slot_done(*read.command, *done) : api::to_reply(done.error()));
    });
  }

  static Result<api::SlotResult> carry_out(const Backend& b, const api::SlotCommand& command) {
    if (command.action == api::SlotAction::kErase) {
      TERRACE_ASSIGN_OR_RETURN(const std::uint32_t tokens, b.scheduler->erase_slot(command.slot));
      return api::SlotResult{.n_tokens = tokens, .n_bytes = 0, .milliseconds = 0};
    }
    const std::filesystem::path file = b.slot_dir / command.file_name;
    TERRACE_ASSIGN_OR_RETURN(const Scheduler::SlotFileResult done, command.action == api::SlotAction::kSave
                                                                       ? b.scheduler->save_slot(command.slot, file)
                                                                       : b.scheduler->restore_slot(command.slot, file));
    return api::SlotResult{.n_tokens = done.tokens, .n_bytes = done.bytes, .milliseconds = done.ms};
  }

  void add_missing() {
    for (const Missing& missing : kMissing)
      add(missing.method, missing.path, [what = missing.what](const Request& r) {
        return to_http(
            api::server_error(501, "This server does not support " + std::string(what), api::dialect_of(r.path)));
      });
  }

  const Backend& backend_;
  http::Router router_;
};

}  // namespace

http::Router make_router(const Backend& backend) { return Routes(backend).make(); }

}  // namespace terrace::serve
