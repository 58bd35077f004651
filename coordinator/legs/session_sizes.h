// What a session with a node asks for, in numbers: the same for a plan, before anything is opened, and for the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/wire/messages.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

inline constexpr std::uint64_t kLargestReplyFrame = std::uint64_t{64} << 20;  // that we accept; ranges keep far below
inline constexpr std::uint32_t kCanaryRows = 2;                               // of the batch that tries a node

struct SessionSizes {
  wire::BatchLimits limits;
  std::uint64_t receive_window = 0;  // bytes of replies, of the latency lane
  std::uint64_t bulk_window = 0;     // and of each connection of the bulk lane
  std::uint64_t windows() const { return receive_window + limits.sockets * bulk_window; }  // of a session
};
// max_rows: of a batch; range_rows: of a prompt batch's row range; sockets: wire::BatchLimits::sockets. Of `model` ids
// and hash are not looked at.
SessionSizes session_sizes(const manifest::Manifest& model, std::uint32_t max_rows, std::uint32_t range_rows,
                           std::uint32_t sockets = 1);

// The layers in which `leg` owns experts.
std::vector<LayerExperts> share_of(const OwnerTable& owners, std::size_t leg);
// ReservationBytes::slabs of a share: bytes as the file has them; the node adds its own rounding.
std::uint64_t slab_bytes(const manifest::Manifest& model, std::span<const LayerExperts> share);

}  // namespace terrace::legs
