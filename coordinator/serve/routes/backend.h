// What the routes answer from, once the model is loaded.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/metrics/families.h"
#include "coordinator/legs/expert_use.h"
#include "coordinator/legs/owner_table.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/http/message.h"
#include "coordinator/serve/http/server.h"
#include "coordinator/serve/scheduler/scheduler.h"

namespace terrace::serve {

// But for `answer_batch`, empty while the model loads: the HTTP server then answers every route but liveness itself
// (Server::set_unavailable()). Filled before that ends, and constant from then on, so that any thread may read it.
// Everything is borrowed and outlives the server.
struct Backend {
  const api::Context* context = nullptr;
  Scheduler* scheduler = nullptr;
  std::function<std::shared_ptr<const legs::OwnerTable>()> owners;  // of the newest epoch
  const legs::ExpertUse* expert_use = nullptr;
  std::filesystem::path slot_dir;  // of --slot-save-path; empty: slots are not saved
  // Set by who starts the server, before the model loads: around what a step tells its streams. May be empty.
  http::AnswerBatch answer_batch;
  // The text for Prometheus, and what of it the HTTP server counts (empty: nothing). Called by the server's thread:
  // must not block.
  std::function<http::Reply()> metrics;
  std::function<std::vector<metrics::Family>()> http_families;
};

}  // namespace terrace::serve
