#include "tier_node/session/limits.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/transport/sealed/sealed.h"
#include "common/wire/pack.h"

namespace terrace::node {
namespace {

constexpr std::uint32_t kMostRows = 65536;  // row ids have 16 bits
// Slots are for audits and tests: they get the memory of the widest sums, and at least so much as far as they need it.
constexpr std::uint64_t kSlotsBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kExecutors = 2;  // one for decode batches between a prompt's slices

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) { return a + std::min(b, ~a); }

Error refused(std::string text) { return Error(ErrorCode::kRefused, std::move(text)); }

std::uint64_t largest_batch_frame(const Model& model, const AskedLimits& asked) {
  std::uint64_t largest = 0;
  for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer) {
    if (!model.layer(layer).has_experts) continue;
    const kernels::ExpertKernels& kernels = model.layer(layer).kernels;
    largest = std::max(largest, wire::batch_frame_bytes({asked.max_rows, asked.max_pairs, asked.max_ranges,
                                                         model.d_model(), kernels.gate_class(), kernels.up_class()}));
  }
  return largest + wire::kSealBytes;
}

std::uint64_t reply_bytes(const wire::BatchLimits& batch) {
  const std::uint64_t sums = std::uint64_t{batch.max_rows} * wire::widest_packed_bytes(batch.d_model);
  const std::uint64_t slots = std::uint64_t{batch.max_pairs} * batch.d_model * sizeof(float);
  return std::max(sums, std::min(slots, kSlotsBytes));
}

std::uint64_t executor_bytes(const Model& model, std::size_t n_workers) {
  std::uint64_t most = 0;
  for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer)
    if (model.layer(layer).has_experts)
      most = std::max(most, kernels::Executor::scratch_bytes(model.layer(layer).kernels, n_workers));
  return kExecutors * most;
}

}  // namespace

std::uint64_t SessionLimits::scratch_bytes() const {
  const std::uint64_t sums = std::uint64_t{batch.max_rows} * batch.d_model * sizeof(std::int64_t);
  const std::uint64_t packed = std::uint64_t{batch.max_rows} * wire::widest_packed_bytes(batch.d_model);
  const std::uint64_t unread =
      most_unread_bytes(wire::Lane::kLatency) + batch.sockets * most_unread_bytes(wire::Lane::kBulk);
  return executor_bytes + sums + packed + unread + (1 + batch.sockets) * sealed_bytes;
}

Result<SessionLimits> make_limits(const Model& model, const AskedLimits& asked, const LimitOptions& options) {
  if (asked.max_rows == 0 || asked.max_pairs == 0 || asked.max_ranges == 0)
    return refused(fmt::format("a session of {} rows, {} pairs and {} ranges a batch; each must be at least 1",
                               asked.max_rows, asked.max_pairs, asked.max_ranges));
  if (asked.max_rows > kMostRows || asked.max_ranges > asked.max_rows)
    return refused(
        fmt::format("batches of {} rows in {} ranges; a batch has at most {} rows and no more ranges than "
                    "rows",
                    asked.max_rows, asked.max_ranges, kMostRows));

  SessionLimits limits;
  limits.batch = {asked.max_rows,
                  asked.max_pairs,
                  asked.max_ranges,
                  model.d_model(),
                  model.n_experts(),
                  model.n_layers(),
                  std::clamp(asked.sockets, 1u, wire::kMostSockets)};
  const std::uint32_t sockets = limits.batch.sockets;
  limits.largest_frame = options.largest_frame;
  limits.largest_peer_frame = std::min(asked.largest_frame, wire::kLargestFrame);
  limits.largest_batch_frame = largest_batch_frame(model, asked);
  if (limits.largest_batch_frame > options.largest_frame)
    return refused(
        fmt::format("the largest batch asked for ({} rows, {} pairs) is a frame of {} bytes, this node takes "
                    "{}; send fewer rows a batch",
                    asked.max_rows, asked.max_pairs, limits.largest_batch_frame, options.largest_frame));
  const std::uint64_t reply =
      wire::widest_reply_frame_bytes(wire::ReplyForm::kSum, 1, 1, model.d_model()) + wire::kSealBytes;
  if (reply > limits.largest_peer_frame)
    return refused(fmt::format("the reply to one row may need a frame of {} bytes, the coordinator takes {}", reply,
                               limits.largest_peer_frame));
  limits.batches = {options.batch_frames, options.batch_windows * limits.largest_batch_frame};
  limits.bulk = {std::max(1u, options.batch_frames / sockets),
                 std::max(1u, options.batch_windows / sockets) * limits.largest_batch_frame};
  limits.reply_bytes = reply_bytes(limits.batch);
  limits.executor_bytes = executor_bytes(model, options.n_workers);
  if (options.seal) limits.sealed_bytes = transport::kSealAhead + limits.reply_bytes;
  limits.weights = {std::max(1u, options.weight_frames / sockets), options.weight_bytes / sockets};
  return limits;
}

SplitTerms split_terms(const Model& model, const arena::ReservationTerms& terms, std::uint64_t card_free) {
  SplitTerms split{terms,
                   std::min(arena::round_to_pages(terms.slabs), card_free / arena::kPageBytes * arena::kPageBytes)};
  const std::uint64_t largest = model.largest_stored_bytes();
  if (split.card < largest) return {terms, 0};
  if (!model.fits_card()) return split;  // the share may be of other layers alone
  split.ram.slabs = split.card >= terms.slabs ? 0 : terms.slabs - (split.card - largest);
  return split;
}

arena::ReservationTerms reservation_terms(const Model& model, const SessionLimits& limits,
                                          const arena::ReservationTerms& asked) {
  arena::ReservationTerms terms;
  terms.slabs = model.stored_bytes(asked.slabs);
  terms.staging = std::max(asked.staging, limits.staging_bytes());
  terms.scratch =
      saturating_sum(std::max(asked.scratch, limits.scratch_bytes()), model.max_live_items() * EpochBook::kBytesAnItem);
  return terms;
}

}  // namespace terrace::node
