// Sends slabs to a node over the weights lane, in pieces, as far as the node's credit goes. Each of the lane's
// connections has slabs of its own under way, a piece of each in turn, so that the node can hash several at once; it
// carries a slab's pieces in order. Pieces are small, since a node reads and opens one before it looks for a decode
// batch again, and smaller while decode steps live. The node says which slabs it wants, so that is checked: only those
// of its share, each once.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
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
  // `lanes`, the connections of the weights lane, outlive the sender. shapes: one a layer. share: what the node may
  // want, from the model that `lookup` knows. stall_timeout: for how long a node that is alive may take no bytes. stop:
  // ends send() early (kPeerGone).
  SlabSender(std::vector<Lane*> lanes, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup,
             std::span<const LayerExperts> share, std::chrono::milliseconds stall_timeout, std::stop_token stop = {});
  // Where pieces are still unsent after an error, their connection is closed: it would read them too late.
  ~SlabSender();
  SlabSender(const SlabSender&) = delete;
  SlabSender& operator=(const SlabSender&) = delete;

  // Sends every wanted slab; returns when the transport has taken the last byte. sent(bytes) is called after each slab.
  // kCorrupt: a slab that is not in the share, or wanted before. kRefused: the node takes no frame of useful size.
  // kDeadline: alive, but takes nothing. Otherwise the lane's errors, the node's own reason among them.
  Status send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent);

  // Waits until the node has given back the credit of what it took. Errors as send().
  Status wait_for_credit();

 private:
  static constexpr std::size_t kPiecesInFlight = 16;  // of a connection
  static constexpr std::size_t kSlabsInTurn = 4;      // of a connection

  struct Piece {
    wire::FrameBuilder builder;
    transport::SendTicket ticket = 0;  // 0: free
  };
  struct Slab {
    std::uint32_t layer = 0;
    std::uint16_t expert = 0;
    std::uint64_t offset = 0;  // of its next byte
  };
  struct Stream {
    Lane* lane = nullptr;
    std::uint64_t piece_bytes = 0;  // of a slab in one frame, at the most; 0: none fits
    std::array<Piece, kPiecesInFlight> pieces;
    std::array<Slab, kSlabsInTurn> slabs;  // the first n_slabs are under way
    std::size_t n_slabs = 0;
    std::size_t turn = 0;  // the one whose piece is next
  };
  Status check(std::span<const LayerExperts> wanted);
  Status advance(Stream& stream, FunctionRef<void(std::uint64_t bytes)> sent);
  void begin_slab(Stream& stream);
  Result<bool> send_piece(Stream& stream, FunctionRef<void(std::uint64_t bytes)> sent);
  Status poll(Stream& stream);
  Status wait_until(FunctionRef<Result<bool>()> ready);
  std::span<const std::byte> next_bytes(const Slab& slab, std::uint64_t most) const;
  static Piece* free_piece(Stream& stream);
  static bool all_sent(const Stream& stream);
  const std::string& node() const { return lanes_.front()->node(); }

  const std::vector<Lane*> lanes_;
  std::vector<std::unique_ptr<Stream>> streams_;  // [lanes]: builders stay where they are
  std::vector<kernels::ExpertShape> shapes_;
  SlabLookup lookup_;
  std::vector<LayerExperts> share_;  // what was not yet wanted of it
  std::chrono::milliseconds stall_timeout_;
  std::stop_token stop_;
  std::vector<Slab> queue_;  // wanted; [next_, end) are not under way yet
  std::size_t next_ = 0;
  Clock::time_point progress_at_;  // the transport last took a piece, or gave one back
};

}  // namespace terrace::legs
