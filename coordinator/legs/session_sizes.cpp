#include "coordinator/legs/session_sizes.h"

#include <algorithm>
#include <utility>

namespace terrace::legs {
namespace {

constexpr std::uint64_t kBatchesInFlight = 2;  // of a lane, whose replies have room at once; of a connection one

}  // namespace

SessionSizes session_sizes(const manifest::Manifest& model, std::uint32_t max_rows, std::uint32_t range_rows,
                           std::uint32_t sockets) {
  SessionSizes sizes;
  wire::BatchLimits& limits = sizes.limits;
  limits.max_rows = std::max(max_rows, kCanaryRows);  // the canary is a batch like any other
  limits.max_pairs = limits.max_rows * model.top_k;
  limits.max_ranges = (limits.max_rows + range_rows - 1) / range_rows;
  limits.d_model = model.d_model;
  limits.n_experts = model.n_experts;
  limits.n_layers = model.n_layers();
  limits.sockets = std::clamp(sockets, 1u, wire::kMostSockets);
  sizes.receive_window =
      kBatchesInFlight * limits.max_ranges *
      (wire::widest_reply_frame_bytes(wire::ReplyForm::kSum, range_rows, range_rows * model.top_k, limits.d_model) +
       wire::kSealBytes);
  sizes.bulk_window = sizes.receive_window / std::min<std::uint64_t>(limits.sockets, kBatchesInFlight);
  return sizes;
}

std::vector<LayerExperts> share_of(const OwnerTable& owners, std::size_t leg) {
  std::vector<LayerExperts> share;
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    LayerExperts entry;
    entry.layer = layer;
    entry.experts = owners.experts(leg, layer);
    if (!entry.experts.empty()) share.push_back(std::move(entry));
  }
  return share;
}

std::uint64_t slab_bytes(const manifest::Manifest& model, std::span<const LayerExperts> share) {
  std::uint64_t bytes = 0;
  for (const LayerExperts& layer : share) bytes += model.slab_bytes(layer.layer) * layer.experts.size();
  return bytes;
}

}  // namespace terrace::legs
