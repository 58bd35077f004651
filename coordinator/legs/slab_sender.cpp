#include "coordinator/legs/slab_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/units.h"

namespace terrace::legs {
namespace {

// A node reads and opens a piece in one go: a decode batch may have to wait for that long.
constexpr std::uint64_t kLargestPiece = std::uint64_t{128} << 10;
constexpr std::uint64_t kLargestWhileDecoding = std::uint64_t{32} << 10;
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

SlabSender::SlabSender(std::vector<Lane*> lanes, std::vector<kernels::ExpertShape> shapes, SlabLookup lookup,
                       std::span<const LayerExperts> share, std::chrono::milliseconds stall_timeout,
                       std::stop_token stop)
    : lanes_(std::move(lanes)),
      shapes_(std::move(shapes)),
      lookup_(std::move(lookup)),
      share_(share.begin(), share.end()),
      stall_timeout_(stall_timeout),
      stop_(std::move(stop)) {
  for (Lane* lane : lanes_) {
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->lane = lane;
    streams_.back()->piece_bytes = piece_bytes(*lane);
  }
}

SlabSender::~SlabSender() {
  for (const auto& stream : streams_)
    if (!all_sent(*stream))
      stream->lane->abort(Error(ErrorCode::kPeerGone, fmt::format("{}: its slabs were not sent to the end", node())));
}

Status SlabSender::poll(Stream& stream) {
  const auto on_frame = [](const wire::Frame& frame, std::span<const std::byte>) -> Result<bool> {
    if (frame.header.type != wire::FrameType::kError)
      return Error(ErrorCode::kCorrupt, fmt::format("a {} frame on the weights lane", wire::name(frame.header.type)));
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    return Error(message.code, message.text);
  };
  const auto on_sent = [&](transport::SendTicket ticket) {
    progress_at_ = Clock::now();
    for (Piece& piece : stream.pieces)
      if (piece.ticket == ticket) piece.ticket = 0;
  };
  return stream.lane->poll({on_frame, on_sent});
}

bool SlabSender::all_sent(const Stream& stream) {
  return std::all_of(stream.pieces.begin(), stream.pieces.end(), [](const Piece& piece) { return piece.ticket == 0; });
}

SlabSender::Piece* SlabSender::free_piece(Stream& stream) {
  const auto free =
      std::find_if(stream.pieces.begin(), stream.pieces.end(), [](const Piece& piece) { return piece.ticket == 0; });
  return free == stream.pieces.end() ? nullptr : &*free;
}

// Polls and waits until ready().
Status SlabSender::wait_until(FunctionRef<Result<bool>()> ready) {
  progress_at_ = Clock::now();
  for (Lane* lane : lanes_) lane->expect_life();
  for (;;) {
    for (const auto& stream : streams_) TERRACE_RETURN_IF_ERROR(poll(*stream));
    TERRACE_ASSIGN_OR_RETURN(const bool done, ready());
    if (done) return {};
    if (stop_.stop_requested())
      return Error(ErrorCode::kPeerGone, fmt::format("{}: sending its slabs was given up by this side", node()));
    if (Clock::now() - progress_at_ > stall_timeout_)
      return Error(ErrorCode::kDeadline, fmt::format("{}: alive, but took nothing of its slabs for {}", node(),
                                                     format_duration(stall_timeout_)));
    TERRACE_RETURN_IF_ERROR(Lane::wait_any(lanes_, Lane::kLongestWait));
  }
}

// Within one of its parts.
std::span<const std::byte> SlabSender::next_bytes(const Slab& slab, std::uint64_t most) const {
  const kernels::ExpertShape& shape = shapes_[slab.layer];
  const kernels::SlabView view = lookup_(slab.layer, slab.expert);
  std::uint64_t begin = 0;
  for (const std::span<const std::byte> part :
       {std::span(view.gate, shape.gate_bytes()), std::span(view.up, shape.up_bytes()),
        std::span(view.down, shape.down_bytes())}) {
    if (slab.offset < begin + part.size())
      return part.subspan(slab.offset - begin).first(std::min<std::uint64_t>(begin + part.size() - slab.offset, most));
    begin += part.size();
  }
  return {};
}

void SlabSender::begin_slab(Stream& stream) {
  if (stream.n_slabs < stream.slabs.size() && next_ < queue_.size()) stream.slabs[stream.n_slabs++] = queue_[next_++];
}

// Of the slab whose turn it is. False: there is no builder or no credit.
Result<bool> SlabSender::send_piece(Stream& stream, FunctionRef<void(std::uint64_t bytes)> sent) {
  Slab& slab = stream.slabs[stream.turn];
  Piece* const piece = free_piece(stream);
  if (piece == nullptr) return false;
  const std::uint64_t most = stream.lane->decode_lives() ? kLargestWhileDecoding : kLargestPiece;
  const std::span<const std::byte> data = next_bytes(slab, std::min(most, stream.piece_bytes));
  const wire::SlabPiece info{slab.layer, slab.expert, slab.offset, shapes_[slab.layer].slab_bytes()};
  wire::FrameHeader header = stream.lane->next_header(wire::FrameType::kSlab);
  header.layer = info.layer;
  piece->builder.begin(header);
  wire::add_slab_piece(piece->builder, info, data);
  if (!stream.lane->has_credit(piece->builder.bytes())) return false;
  const auto ticket = stream.lane->send(piece->builder);
  if (!ticket.ok()) {
    TERRACE_RETURN_IF_ERROR(poll(stream));  // what the node said before it went is the better reason
    return ticket.error();
  }
  piece->ticket = *ticket;
  slab.offset += data.size();
  progress_at_ = Clock::now();
  if (slab.offset < info.slab_bytes) {
    ++stream.turn;
  } else {
    slab = stream.slabs[--stream.n_slabs];
    sent(info.slab_bytes);
  }
  if (stream.turn >= stream.n_slabs) stream.turn = 0;
  return true;
}

// As many pieces as there are builders and credit for. A slab is added now and then, not all at once: the other
// connections want theirs.
Status SlabSender::advance(Stream& stream, FunctionRef<void(std::uint64_t bytes)> sent) {
  begin_slab(stream);
  while (stream.n_slabs > 0) {
    TERRACE_ASSIGN_OR_RETURN(const bool more, send_piece(stream, sent));
    if (!more) return {};
    if (stream.n_slabs == 0) begin_slab(stream);
  }
  return {};
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
                                 node(), expert, layer.layer));
    }
  return {};
}

Status SlabSender::send(std::span<const LayerExperts> wanted, FunctionRef<void(std::uint64_t bytes)> sent) {
  TERRACE_RETURN_IF_ERROR(check(wanted));
  for (const auto& stream : streams_)
    if (stream->piece_bytes == 0)
      return Error(ErrorCode::kRefused,
                   fmt::format("{}: takes slabs in frames of at most {} bytes, a window of {}; no piece fits", node(),
                               stream->lane->largest_frame(), stream->lane->window_bytes()));
  queue_.clear();
  next_ = 0;
  for (const LayerExperts& layer : wanted)
    for (const std::uint16_t expert : layer.experts) queue_.push_back({layer.layer, expert, 0});
  return wait_until([&]() -> Result<bool> {
    bool done = true;
    for (const auto& stream : streams_) {
      TERRACE_RETURN_IF_ERROR(advance(*stream, sent));
      done = done && stream->n_slabs == 0 && all_sent(*stream);
    }
    return done;
  });
}

Status SlabSender::wait_for_credit() {
  return wait_until([&]() -> Result<bool> {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane* lane) { return lane->all_credit_back(); });
  });
}

}  // namespace terrace::legs
