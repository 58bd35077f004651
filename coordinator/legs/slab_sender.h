// Sends slabs to a node over the weights lane, in pieces, as far as the node's credit goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/lane.h"
#include "coordinator/legs/node_control.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

// One owner thread.
class SlabSender {
 public:
  // `lane` outlives the sender. shapes: one a layer.
  SlabSender(Lane& lane, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup);

  // Sends every wanted slab; returns when the transport has taken the last byte. sent(bytes) is called now and then.
  // kCorrupt: a slab the model does not have. Otherwise the lane's errors.
  Status send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent);

 private:
  struct Piece {
    wire::FrameBuilder builder;
    wire::SlabPiece info;
    transport::SendTicket ticket = 0;  // 0: free
  };
  Status send_slab(std::uint32_t layer, std::uint16_t expert);
  Status send_part(const wire::SlabPiece& slab, std::uint64_t offset, std::span<const std::byte> part);
  Status send_piece(const wire::SlabPiece& info, std::span<const std::byte> data);
  Status poll();
  Result<Piece*> free_piece();
  bool all_sent() const;

  Lane& lane_;
  std::vector<kernels::ExpertShape> shapes_;
  SlabLookup lookup_;
  std::uint64_t piece_bytes_;
  std::vector<Piece> pieces_;
};

}  // namespace terrace::legs
