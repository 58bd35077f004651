// A request on its way: from submit() to the slot that runs it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "common/base/time.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/serve/scheduler/request.h"
#include "coordinator/text/text_output.h"

namespace terrace::serve {

using Clock = std::chrono::steady_clock;

// Checked, and made on the client's thread, so that what it allocates costs no step.
struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<Listener> listener;
  text::TextOutput output;
  std::optional<sampler::GrammarState> grammar;
  Clock::time_point submitted;
};

}  // namespace terrace::serve
