#include "coordinator/legs/slab_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/units.h"

namespace terrace::legs {
namespace {

constexpr std::size_t kPiecesInFlight = 8;
constexpr std::uint64_t kLargestPiece = std::uint64_t{1} << 20;
// A node that takes less at once could keep us busy for days with one share.
constexpr std::uint64_t kSmallestPiece = 512;
// Header, two section headers, the piece's description and paddings.
constexpr std::uint64_t kFrameOverhead =
    wire::kHeaderBytes + 2 * (wire::kSectionHeaderBytes + wire::kAlignment) + sizeof(wire::SlabPiece);

std::uint64_t piece_bytes(const Lane& lane) {
  const std::uint64_t frame = std::min(lane.largest_frame(), lane.window_bytes());
  return frame >= kFrameOverhead + kSmallestPiece ? std::min(kLargestPiece, frame - kFrameOverhead) : 0;
}

}  // namespace

SlabSender::SlabSender(Lane& lane, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup,
                       std::span<const LayerExperts> share, std::chrono::milliseconds stall_timeout,
                       std::stop_token stop)
    : lane_(lane),
      shapes_(std::move(shapes)),
      lookup_(std::move(lookup)),
      share_(share.begin(), share.end()),
      stall_timeout_(stall_timeout),
      stop_(std::move(stop)),
      piece_bytes_(piece_bytes(lane)),
      pieces_(kPiecesInFlight) {}

SlabSender::~SlabSender() {
  if (!all_sent())
    lane_.abort(Error(ErrorCode::kPeerGone, fmt::format("{}: its slabs were not sent to the end", lane_.node())));
}

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

SlabSender::Piece* SlabSender::free_piece() {
  const auto free = std::find_if(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.ticket == 0; });
  return free == pieces_.end() ? nullptr : &*free;
}

// Polls and waits until ready().
Status SlabSender::wait_until(FunctionRef<bool()> ready) {
  const auto start = Clock::now();
  lane_.expect_life();
  while (!ready()) {
    TERRACE_RETURN_IF_ERROR(poll());
    if (ready()) break;
    if (stop_.stop_requested())
      return Error(ErrorCode::kPeerGone, fmt::format("{}: sending its slabs was given up by this side", lane_.node()));
    if (Clock::now() - start > stall_timeout_)
      return Error(ErrorCode::kDeadline, fmt::format("{}: alive, but took nothing of its slabs for {}", lane_.node(),
                                                     format_duration(stall_timeout_)));
    TERRACE_RETURN_IF_ERROR(lane_.wait(Lane::kLongestWait));
  }
  return {};
}

Status SlabSender::send_piece(const wire::SlabPiece& info, std::span<const std::byte> data) {
  Piece* piece = nullptr;
  TERRACE_RETURN_IF_ERROR(wait_until([&] { return (piece = free_piece()) != nullptr; }));
  const auto has_credit = [&] {
    wire::FrameHeader header = lane_.next_header(wire::FrameType::kSlab);
    header.layer = info.layer;
    piece->builder.begin(header);
    wire::add_slab_piece(piece->builder, info, data);
    return lane_.has_credit(piece->builder.bytes());
  };
  TERRACE_RETURN_IF_ERROR(wait_until(has_credit));
  const auto ticket = lane_.send(piece->builder);
  if (!ticket.ok()) {
    TERRACE_RETURN_IF_ERROR(poll());  // what the node said before it went is the better reason
    return ticket.error();
  }
  piece->ticket = *ticket;
  return {};
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

// Takes what is wanted off the share.
Status SlabSender::check(std::span<const LayerExperts> wanted) {
  for (const LayerExperts& layer : wanted)
    for (const std::uint16_t expert : layer.experts) {
      const auto owned = std::find_if(share_.begin(), share_.end(),
                                      [&](const LayerExperts& candidate) { return candidate.layer == layer.layer; });
      if (owned == share_.end() || std::erase(owned->experts, expert) == 0)
        return Error(ErrorCode::kCorrupt,
                     fmt::format("{}: it wants expert {} of layer {}, which is not in its share, or was wanted before",
                                 lane_.node(), expert, layer.layer));
    }
  return {};
}

Status SlabSender::send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent) {
  TERRACE_RETURN_IF_ERROR(check(wanted));
  if (piece_bytes_ == 0)
    return Error(ErrorCode::kRefused, fmt::format("{}: takes slabs in frames of at most {} bytes, a window of {}; no "
                                                  "piece fits",
                                                  lane_.node(), lane_.largest_frame(), lane_.window_bytes()));
  for (const LayerExperts& layer : wanted)
    for (const std::uint16_t expert : layer.experts) {
      TERRACE_RETURN_IF_ERROR(send_slab(layer.layer, expert));
      sent(shapes_[layer.layer].slab_bytes());
    }
  return wait_until([&] { return all_sent(); });
}

}  // namespace terrace::legs
