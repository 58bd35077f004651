#include "coordinator/serve/routes/health.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/serve/routes/replies.h"

namespace terrace::serve {

http::Reply health(const SchedulerStatus& status) {
  const auto is_node = [](const LegStatus& leg) { return leg.kind == legs::LegKind::kNode; };
  const auto is_lost = [&](const LegStatus& leg) { return is_node(leg) && leg.state != legs::LegState::kOk; };
  const auto nodes = std::ranges::count_if(status.legs, is_node);
  const auto lost = std::ranges::count_if(status.legs, is_lost);
  if (status.step_error && lost > 0)
    return error_reply(503, fmt::format("steps fail: {} of {} nodes lost", lost, nodes), "/health");
  http::Reply reply;
  reply.body = R"({"status":"ok"})";
  if (lost > 0) reply.body = fmt::format(R"({{"status":"degraded","nodes":{},"nodes_lost":{}}})", nodes, lost);
  if (status.step_error) reply.body = R"({"status":"degraded","last_step_failed":true})";
  return reply;
}

}  // namespace terrace::serve
