#include "coordinator/serve/routes/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "coordinator/serve/routes/replies.h"

namespace terrace::serve {

namespace {

// Of nodes.
std::ptrdiff_t count(const SchedulerStatus& status, legs::LegState state) {
  return std::ranges::count_if(
      status.legs, [&](const LegStatus& leg) { return leg.kind == legs::LegKind::kNode && leg.state == state; });
}

}  // namespace

// A suspect node is none of this: it answers again, or is lost in a moment.
http::Reply health(const SchedulerStatus& status) {
  const auto nodes =
      std::ranges::count_if(status.legs, [](const LegStatus& leg) { return leg.kind == legs::LegKind::kNode; });
  const auto lost = count(status, legs::LegState::kLost), wrong = count(status, legs::LegState::kWrong);
  if (status.step_error && lost + wrong > 0)
    return error_reply(503, fmt::format("steps fail: {} of {} nodes lost", lost + wrong, nodes), "/health");
  http::Reply reply;
  reply.body = R"({"status":"ok"})";
  if (status.step_error) reply.body = R"({"status":"degraded","last_step_failed":true})";
  if (lost + wrong > 0) {
    const std::string told_wrong = wrong > 0 ? fmt::format(R"(,"nodes_wrong":{})", wrong) : "";
    reply.body = fmt::format(R"({{"status":"degraded","nodes":{},"nodes_lost":{}{}}})", nodes, lost, told_wrong);
  }
  return reply;
}

}  // namespace terrace::serve
