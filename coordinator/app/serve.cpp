// terrace serve
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "common/base/console.h"
#include "common/base/machine_limits.h"
#include "common/base/service_manager.h"
#include "common/base/stop_signal.h"
#include "common/threads/start.h"
#include "coordinator/app/command.h"
#include "coordinator/app/serve_options.h"
#include "coordinator/app/served_model.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/metrics/http_counts.h"
#include "coordinator/serve/routes/access_log.h"
#include "coordinator/serve/routes/replies.h"
#include "coordinator/serve/routes/routes.h"

namespace terrace::app {
namespace {

using serve::http::Milliseconds;

constexpr std::uint32_t kRetryWhileLoading = 5;  // s
// For what has been answered to be taken by its clients.
constexpr Milliseconds kLastBytes{2000};

ServeOptions with_server_defaults() {
  ServeOptions options;
  options.sampling = serve::api::default_sampling();
  return options;
}

// SIGTERM and SIGINT, in a thread of their own: while the model loads nothing can be ended in order, and the process
// ends as it is (nodes free what they hold when their leases run out).
class StopWatch {
 public:
  static Result<std::unique_ptr<StopWatch>> create() {
    TERRACE_ASSIGN_OR_RETURN(auto signal, StopSignal::create());
    std::unique_ptr<StopWatch> watch(new StopWatch(std::move(signal)));
    TERRACE_ASSIGN_OR_RETURN(watch->thread_, start_thread("terrace-signals", [w = watch.get()] { w->watch(); }));
    return watch;
  }
  ~StopWatch() {
    signal_->notify();
    if (thread_.joinable()) thread_.join();
  }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  // From here on a signal is waited for, and a second one ends the process at once.
  void wait() {
    std::unique_lock lock(mutex_);
    loading_ = false;
    changed_.wait(lock, [this] { return came_; });
    signal_->restore();
  }

 private:
  explicit StopWatch(std::unique_ptr<StopSignal> signal) : signal_(std::move(signal)) {}

  void watch() {
    if (!signal_->wait()) return;
    const std::scoped_lock lock(mutex_);
    if (loading_) {
      print_err("terrace: stopped while the model was loading\n");
      std::_Exit(kExitOk);
    }
    came_ = true;
    changed_.notify_all();
  }

  const std::unique_ptr<StopSignal> signal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool loading_ = true;
  bool came_ = false;
  std::thread thread_;
};

// Each connection is an open file, and the usual limit of 1,024 is for programs that know no better: it is raised as
// far as the system lets us.
void make_room_for(std::uint32_t connections, const Logger& log) {
  constexpr std::uint64_t kOtherFiles = 512;  // model, nodes, pages, refusals
  const std::uint64_t wanted = connections + kOtherFiles;
  if (const std::uint64_t allowed = raise_descriptor_limit(wanted); allowed < wanted)
    log.warn("--max-connections {} needs {} open files and the system allows {} (`ulimit -Hn`)", connections, wanted,
             allowed);
}

Status serve_until_stopped(const ServeOptions& options, const Environment& environment, const Logger& log) {
  const ServiceManager manager(environment);
  make_room_for(options.max_connections, log);
  TERRACE_ASSIGN_OR_RETURN(serve::http::ServerOptions http, server_options(options));
  http.error_reply = serve::error_reply;
  serve::HttpCounts counts;
  serve::AccessLog access_log(log);
  http.on_served = [&access_log, &counts](const serve::http::Served& served) {
    access_log.add(served);
    counts.add(served);
  };
  http.log = log;
  http.unavailable = serve::http::Unavailable{.message = "Loading model", .retry_after_s = kRetryWhileLoading};

  TERRACE_ASSIGN_OR_RETURN(const auto stop, StopWatch::create());
  serve::Backend backend;
  std::unique_ptr<ServedModel> model;  // outlives the server, whose routes use it
  TERRACE_ASSIGN_OR_RETURN(const auto server, start_server(std::move(http), make_router(backend), options.model));
  print_err("listening on {}\n", server->url());
  backend.answer_batch = server->answer_batch();
  backend.http_families = [&counts, &server] { return counts.families(server->counts()); };
  TERRACE_ASSIGN_OR_RETURN(model, ServedModel::load(options, environment, log, backend));
  server->set_unavailable(std::nullopt);
  log.info("ready: {} slots", options.slots);
  warn_if_failed(manager.ready(), log);

  stop->wait();
  warn_if_failed(manager.stopping(), log);
  const auto patience = std::chrono::ceil<Milliseconds>(options.stop_timeout);
  log.info("stopping: requests may go on for {} ms", patience.count());
  server->set_unavailable(serve::http::Unavailable{.message = "The server is stopping", .retry_after_s = std::nullopt});
  model->scheduler().stop(patience);
  if (!server->stop(kLastBytes)) log.warn("clients that did not take their answers were cut off");
  return model->end_trace();
}

}  // namespace

std::vector<std::string> serve_option_names() {
  ServeOptions o;
  return make_table(&o).option_names();
}

Status run_serve(const CommandContext& context) {
  ServeOptions o = with_server_defaults();
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_RETURN_IF_ERROR(check(o));
  if (o.model.quiet && o.log.level == LogLevel::kInfo) o.log.level = LogLevel::kWarn;
  o.log.colour = colour_wanted(context.environment, STDERR_FILENO);
  const Logger log = Logger::to_stderr(o.log);
  o.model.log = log;
  o.model.notes_in_log = o.log.json;
  TERRACE_ASSIGN_OR_RETURN(o.model.model, model_file(o.model));
  return serve_until_stopped(o, context.environment, log);
}

}  // namespace terrace::app
