// Sends slabs to a node over the weights lane, in pieces, as far as the node's credit goes. The node says which ones it
// wants, so that is checked: only slabs of its share, each once.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
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
  // `lane` outlives the sender. shapes: one a layer. share: what the node may want, from the model that `lookup` knows.
  // stall_timeout: for how long a node that is alive may take no bytes. stop: ends send() early (kPeerGone).
  SlabSender(Lane& lane, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup,
             std::span<const LayerExperts> share, std::chrono::milliseconds stall_timeout, std::stop_token stop = {});
  // Where pieces are still unsent after an error, the lane is closed: it would read them too late.
  ~SlabSender();
  SlabSender(const SlabSender&) = delete;
  SlabSender& operator=(const SlabSender&) = delete;

  // Sends every wanted slab; returns when the transport has taken the last byte. sent(bytes) is called after each slab.
  // kCorrupt: a slab that is not in the share, or wanted before. kRefused: the node takes no frame of useful size.
  // kDeadline: alive, but takes nothing. Otherwise the lane's errors, the node's own reason among them.
  Status send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent);

  // Waits until the node has given back the credit of what it took: `bytes` of it are there. Errors as send().
  Status wait_for_credit(std::uint64_t bytes) {
    return wait_until([&] { return lane_.credit_bytes() >= bytes; });
  }

 private:
  struct Piece {
    wire::FrameBuilder builder;
    transport::SendTicket ticket = 0;  // 0: free
  };
  Status check(std::span<const LayerExperts> wanted);
  Status send_slab(std::uint32_t layer, std::uint16_t expert);
  Status send_part(const wire::SlabPiece& slab, std::uint64_t offset, std::span<const std::byte> part);
  Status send_piece(const wire::SlabPiece& info, std::span<const std::byte> data);
  Status poll();
  Status wait_until(FunctionRef<bool()> ready);
  Piece* free_piece();
  bool all_sent() const;

  Lane& lane_;
  std::vector<kernels::ExpertShape> shapes_;
  SlabLookup lookup_;
  std::vector<LayerExperts> share_;  // what was not yet wanted of it
  std::chrono::milliseconds stall_timeout_;
  std::stop_token stop_;
  std::uint64_t piece_bytes_;  // of a slab in one frame; 0: none fits
  std::vector<Piece> pieces_;
};

}  // namespace terrace::legs
