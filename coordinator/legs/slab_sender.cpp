#include "coordinator/legs/slab_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace terrace::legs {
namespace {

constexpr std::size_t kPiecesInFlight = 8;
constexpr std::uint64_t kLargestPiece = std::uint64_t{1} << 20;
constexpr std::uint64_t kFrameOverhead = 256;  // header, two section headers, the piece's description, padding
constexpr std::chrono::milliseconds kWait{200};

}  // namespace

SlabSender::SlabSender(Lane& lane, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup)
    : lane_(lane),
      shapes_(std::move(shapes)),
      lookup_(std::move(lookup)),
      piece_bytes_(
          std::min({kLargestPiece, lane.largest_frame() - kFrameOverhead, lane.window_bytes() - kFrameOverhead})),
      pieces_(kPiecesInFlight) {}

Status SlabSender::poll() {
  const auto on_frame = [](const wire::Frame& frame, std::span<const std::byte>) -> Result<bool> {
    if (frame.header.type != wire::FrameType::kError)
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame on the weights lane", wire::name(frame.header.type)));
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    return Error(message.code, message.text);
  };
  const auto on_sent = [&](transport::SendTicket ticket) {
    for (Piece& piece : pieces_)
      if (piece.ticket == ticket) piece.ticket = 0;
  };
  return lane_.poll({on_frame, on_sent});
}

bool SlabSender::all_sent() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.ticket == 0; });
}

Result<SlabSender::Piece*> SlabSender::free_piece() {
  lane_.expect_life();
  for (;;) {
    for (Piece& piece : pieces_)
      if (piece.ticket == 0) return &piece;
    TERRACE_RETURN_IF_ERROR(poll());
    if (std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.ticket != 0; }))
      TERRACE_RETURN_IF_ERROR(lane_.wait(kWait));
  }
}

Status SlabSender::send_piece(const wire::SlabPiece& info, std::span<const std::byte> data) {
  TERRACE_ASSIGN_OR_RETURN(Piece * piece, free_piece());
  piece->info = info;
  wire::FrameHeader header = lane_.next_header(wire::FrameType::kSlab);
  header.layer = info.layer;
  piece->builder.begin(header);
  wire::add_slab_piece(piece->builder, piece->info, data);
  lane_.expect_life();
  for (;;) {
    piece->builder.finish();
    if (lane_.has_credit(piece->builder.bytes())) {
      auto ticket = lane_.send(piece->builder);
      if (ticket.ok()) {
        piece->ticket = *ticket;
        return {};
      }
      if (ticket.error().code() != ErrorCode::kBusy) return ticket.error();
    }
    TERRACE_RETURN_IF_ERROR(lane_.wait(kWait));
    TERRACE_RETURN_IF_ERROR(poll());
  }
}

Status SlabSender::send_part(const wire::SlabPiece& slab, std::uint64_t offset, std::span<const std::byte> part) {
  while (!part.empty()) {
    const auto data = part.first(std::min<std::uint64_t>(part.size(), piece_bytes_));
    wire::SlabPiece info = slab;
    info.offset = offset;
    TERRACE_RETURN_IF_ERROR(send_piece(info, data));
    offset += data.size();
    part = part.subspan(data.size());
  }
  return {};
}

Status SlabSender::send_slab(std::uint32_t layer, std::uint16_t expert) {
  const kernels::ExpertShape& shape = shapes_[layer];
  const kernels::SlabView slab = lookup_(layer, expert);
  wire::SlabPiece info;
  info.layer = layer;
  info.expert = expert;
  info.slab_bytes = shape.slab_bytes();
  TERRACE_RETURN_IF_ERROR(send_part(info, 0, {slab.gate, shape.gate_bytes()}));
  TERRACE_RETURN_IF_ERROR(send_part(info, shape.gate_bytes(), {slab.up, shape.up_bytes()}));
  return send_part(info, shape.gate_bytes() + shape.up_bytes(), {slab.down, shape.down_bytes()});
}

Status SlabSender::send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent) {
  for (const LayerExperts& layer : wanted) {
    if (layer.layer >= shapes_.size())
      return Error(ErrorCode::kCorrupt, fmt::format("the node wants slabs of layer {}", layer.layer));
    for (const std::uint16_t expert : layer.experts) {
      TERRACE_RETURN_IF_ERROR(send_slab(layer.layer, expert));
      sent(shapes_[layer.layer].slab_bytes());
    }
  }
  lane_.expect_life();
  while (!all_sent()) {
    TERRACE_RETURN_IF_ERROR(poll());
    if (!all_sent()) TERRACE_RETURN_IF_ERROR(lane_.wait(kWait));
  }
  return {};
}

}  // namespace terrace::legs
