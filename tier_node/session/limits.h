// What a session may send at once, and the memory that this costs the node.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/arena/slab_store.h"
#include "common/base/result.h"
#include "common/wire/messages.h"
#include "tier_node/session/model.h"

namespace terrace::node {

// One lane's first grant.
struct LaneCredit {
  std::uint32_t frames = 0;
  std::uint64_t bytes = 0;
};

// Frames are counted as they travel, with room for the tag of a sealed one on plain links too.
struct SessionLimits {
  wire::BatchLimits batch;
  std::uint64_t largest_frame = 0;       // that this node takes
  std::uint64_t largest_peer_frame = 0;  // that the coordinator takes
  LaneCredit batches;  // of the latency lane; these are of one connection, of which the latency lane has one
  LaneCredit bulk;     // and these two lanes batch.sockets each: together about as much
  LaneCredit weights;

  std::uint64_t largest_batch_frame = 0;
  std::uint64_t reply_bytes = 0;     // set aside for all replies to one batch: the most that may be asked for
  std::uint64_t executor_bytes = 0;  // scratch of the executors
  std::uint64_t sealed_bytes = 0;    // of a connection's replies that are sealed and not yet sent; 0 on plain links

  const LaneCredit& credit(wire::Lane lane) const {
    return lane == wire::Lane::kWeights ? weights : lane == wire::Lane::kBulk ? bulk : batches;
  }
  // Connections that a lane may have.
  std::uint32_t sockets(wire::Lane lane) const { return lane == wire::Lane::kLatency ? 1 : batch.sockets; }
  // Receive windows of the three lanes.
  std::uint64_t staging_bytes() const { return batches.bytes + batch.sockets * (bulk.bytes + weights.bytes); }
  // Executors, sums of the largest range, its rows packed at their widest, the replies that may lie unread, those that
  // are sealed.
  std::uint64_t scratch_bytes() const;
  // Replies that a connection may have left unread: more than those to the batches it has credit for cannot be in
  // order.
  std::uint64_t most_unread_bytes(wire::Lane lane) const { return credit(lane).frames * reply_bytes; }
};

struct LimitOptions {
  std::uint64_t largest_frame = std::uint64_t{64} << 20;
  // Per lane; connections of a lane share them, but each has room for a frame and for a largest batch.
  std::uint32_t batch_frames = 8;
  std::uint32_t batch_windows = 4;  // bytes of so many largest batches
  std::uint32_t weight_frames = 128;
  std::uint64_t weight_bytes = std::uint64_t{16} << 20;
  std::size_t n_workers = 1;  // that compute
  bool seal = false;          // data connections: credentials are given, and --plain-data is not
};

struct AskedLimits {
  std::uint32_t max_rows = 0;
  std::uint32_t max_pairs = 0;
  std::uint32_t max_ranges = 0;
  std::uint64_t largest_frame = 0;  // that the coordinator takes
  std::uint32_t sockets = 1;        // wire::BatchLimits::sockets; 0: 1; more than kMostSockets: so many
};

// kRefused names what does not fit: no rows, pairs or ranges, more rows than the format has ids for, a largest batch
// over this node's largest frame, or the reply to a single row over the coordinator's.
Result<SessionLimits> make_limits(const Model& model, const AskedLimits& asked, const LimitOptions& options);

// What of a reservation's slabs lies on the card; the rest of it is RAM.
struct SplitTerms {
  arena::ReservationTerms ram;
  std::uint64_t card = 0;  // bytes of slabs
};
// `terms` spread over RAM and `card_free` bytes of the card. Which slabs will come is not known: what is left on the
// card when one of them does not fit any more is less than the largest, and that much more is set aside in RAM.
SplitTerms split_terms(const Model& model, const arena::ReservationTerms& terms, std::uint64_t card_free);

// What a session's reservation takes where its coordinator asks for `asked`: the slabs with the store's rounding, and
// at least this node's own windows and scratch. Reserve and Estimate both count with it.
arena::ReservationTerms reservation_terms(const Model& model, const SessionLimits& limits,
                                          const arena::ReservationTerms& asked);

}  // namespace terrace::node
