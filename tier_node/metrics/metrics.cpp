#include "tier_node/metrics/metrics.h"

#include <utility>

namespace terrace::node {
namespace {

using metrics::Family;
using metrics::Kind;
using metrics::Labels;

template <class Number>
metrics::Sample number(Number value, Labels labels = {}) {
  return {static_cast<double>(value), std::move(labels), {}};
}

std::vector<Family> session_families(const SessionTotals& totals, std::size_t open) {
  return {
      {"terrace_node_sessions", Kind::kGauge, "Sessions that are open.", {number(open)}},
      {"terrace_node_sessions_opened_total",
       Kind::kCounter,
       "Sessions that coordinators opened.",
       {number(totals.opened)}},
      {"terrace_node_sessions_ended_total",
       Kind::kCounter,
       "Sessions that are over: closed by their coordinator, or failed by a lost connection, a lease or an error.",
       {number(totals.closed, {{"outcome", "closed"}}), number(totals.failed, {{"outcome", "failed"}})}},
      {"terrace_node_batches_total", Kind::kCounter, "Batches answered.", {number(totals.batches)}},
      {"terrace_node_rows_total", Kind::kCounter, "Rows of these batches.", {number(totals.rows)}},
      {"terrace_node_pairs_total", Kind::kCounter, "Pairs of row and expert computed.", {number(totals.pairs)}},
      {"terrace_node_sent_bytes_total", Kind::kCounter, "Frames sent.", {number(totals.bytes_sent)}},
      {"terrace_node_received_bytes_total",
       Kind::kCounter,
       "Frames received, those with experts included.",
       {number(totals.bytes_received)}},
      {"terrace_node_compute_seconds_total",
       Kind::kCounter,
       "Time in kernels.",
       {number(static_cast<double>(totals.compute_us) * 1e-6)}},
  };
}

std::vector<Family> memory_families(const arena::StoreUsage& memory, bool draining) {
  return {
      {"terrace_node_memory_budget_bytes", Kind::kGauge, "What sessions may reserve in all.", {number(memory.budget)}},
      {"terrace_node_memory_reserved_bytes", Kind::kGauge, "What sessions have reserved.", {number(memory.reserved)}},
      {"terrace_node_memory_used_bytes", Kind::kGauge, "Experts in memory, shared ones once.", {number(memory.used)}},
      {"terrace_node_draining", Kind::kGauge, "1 once the node takes no more sessions, else 0.", {number(draining)}},
  };
}

}  // namespace

std::vector<Family> node_families(SessionTable& sessions) {
  std::vector<Family> families = session_families(sessions.totals(), sessions.all().size());
  for (Family& family : memory_families(sessions.store().usage(), sessions.draining()))
    families.push_back(std::move(family));
  return families;
}

}  // namespace terrace::node
