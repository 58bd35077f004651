// A loaded model behind the routes of `terrace serve`: engine, scheduler, and what answers tell of them.
#pragma once

#include <functional>
#include <memory>

#include "common/base/environment.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/serve_options.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/routes/backend.h"

namespace terrace::app {

// Server::start(). Its threads are kept off the CPU on which the model's steps are taken (Engine::pin_step_thread()),
// where there is another: a wake-up there would put the step's thread aside just when all wait for it. Errors as
// choose_cpus() and Server::start().
Result<std::unique_ptr<serve::http::Server>> start_server(serve::http::ServerOptions http, serve::http::Router router,
                                                          const ModelOptions& options);

// Made and destroyed by one thread; in between the scheduler's own thread has the engine.
class ServedModel {
 public:
  // For `terrace bench`: called between the engine and the scheduler, on the loading thread. Gives the trunk that the
  // scheduler takes, the engine's or one around it, which outlives the result.
  using TrunkOf = std::function<Result<arch::Trunk*>(Engine& engine)>;

  // Loads the model, connects to its nodes and starts the scheduler; fills `backend`, which then borrows of the result.
  // Errors as Engine::open() and Scheduler::make(), or trunk_of's.
  static Result<std::unique_ptr<ServedModel>> load(const ServeOptions& options, const Environment& environment,
                                                   const Logger& log, serve::Backend& backend,
                                                   const TrunkOf& trunk_of = {});
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  serve::Scheduler& scheduler();
  // As Engine::end_trace(), once the scheduler has stopped.
  Status end_trace();

 private:
  struct Parts;
  explicit ServedModel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace::app
