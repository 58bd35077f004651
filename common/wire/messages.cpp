#include "common/wire/messages.h"

#include <algorithm>

#include "common/base/printable.h"
#include "common/wire/bytes.h"

namespace terrace::wire {
namespace {

// The layouts in docs/wire.md.
static_assert(sizeof(Challenge) == 16 && sizeof(Proof) == 56 && sizeof(Accept) == 32);
static_assert(sizeof(Hello) == 16 && sizeof(Welcome) == 24 && sizeof(Busy) == 8 && sizeof(SlabPiece) == 24);
static_assert(sizeof(RowRange) == 8 && sizeof(EndpointInfo) == 16);
// Error codes travel by number: these stay what they are, new ones are added behind them.
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == 0 && static_cast<int>(ErrorCode::kStaleEpoch) == 6 &&
              static_cast<int>(ErrorCode::kNotFinite) == 10 && static_cast<int>(ErrorCode::kInternal) == 13);

Status check_largest_frame(const char* message, std::uint64_t bytes) {
  if (bytes >= kHeaderBytes && bytes <= kLargestFrame) return {};
  return corrupt("{}: a largest frame of {} bytes, allowed are {} to {}", message, bytes, kHeaderBytes, kLargestFrame);
}

Status check_reserved(const char* message, std::uint32_t reserved) {
  if (reserved == 0) return {};
  return corrupt("{}: reserved bytes are not zero", message);
}

// Of the frames before hello: what nobody vouches for must say nothing.
Status check_bare(const FrameHeader& header) {
  if (header.flags == 0 && header.layer == 0 && header.sequence == 0 && header.epoch == 0 &&
      header.credit_frames == 0 && header.credit_bytes == 0)
    return {};
  return corrupt("{} frame: header fields beside type, lane and session are not zero", name(header.type));
}

}  // namespace

void add_challenge(FrameBuilder& builder, const Challenge& challenge) {
  builder.add_copy(SectionTag::kChallenge, 0, bytes_of(challenge));
}

void add_proof(FrameBuilder& builder, const Proof& proof) { builder.add_copy(SectionTag::kProof, 0, bytes_of(proof)); }

void add_accept(FrameBuilder& builder, const Accept& accept) {
  builder.add_copy(SectionTag::kAccept, 0, bytes_of(accept));
}

void add_endpoint(FrameBuilder& builder, const EndpointMessage& message) {
  builder.add_copy(SectionTag::kEndpoint, 0, bytes_of(message.info), message.address);
}

void add_hello(FrameBuilder& builder, const Hello& hello) { builder.add_copy(SectionTag::kHello, 0, bytes_of(hello)); }

void add_welcome(FrameBuilder& builder, const Welcome& welcome) {
  builder.add_copy(SectionTag::kWelcome, 0, bytes_of(welcome));
}

void add_busy(FrameBuilder& builder, const Busy& busy) { builder.add_copy(SectionTag::kBusy, 0, bytes_of(busy)); }

void add_error(FrameBuilder& builder, ErrorCode code, std::string_view text) {
  const auto number = static_cast<std::uint32_t>(code);
  builder.add_copy(SectionTag::kError, 0, bytes_of(number), std::as_bytes(std::span(text.substr(0, kMaxErrorText))));
}

void add_slab_piece(FrameBuilder& builder, const SlabPiece& piece, std::span<const std::byte> data) {
  builder.add_copy(SectionTag::kSlab, 0, bytes_of(piece));
  builder.add(SectionTag::kSlabBytes, 0, data);
}

Result<Challenge> read_challenge(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kChallenge));
  TERRACE_RETURN_IF_ERROR(check_bare(frame.header));
  if (frame.header.session != 0 || frame.header.lane != Lane::kLatency)
    return corrupt("challenge frame: it names session {:016x}, lane {}; nobody has asked for one yet",
                   frame.header.session, name(frame.header.lane));
  return read_struct<Challenge>(frame, SectionTag::kChallenge);
}

Result<Proof> read_proof(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kProof));
  TERRACE_RETURN_IF_ERROR(check_bare(frame.header));
  TERRACE_ASSIGN_OR_RETURN(const Proof proof, read_struct<Proof>(frame, SectionTag::kProof));
  TERRACE_RETURN_IF_ERROR(check_reserved("proof", proof.reserved));
  return proof;
}

Result<Accept> read_accept(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kAccept));
  TERRACE_RETURN_IF_ERROR(check_bare(frame.header));
  return read_struct<Accept>(frame, SectionTag::kAccept);
}

Result<EndpointMessage> read_endpoint(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kEndpoint));
  TERRACE_RETURN_IF_ERROR(check_bare(frame.header));
  const Section* section = frame.find(SectionTag::kEndpoint);
  if (section == nullptr) return corrupt("endpoint frame: section endpoint is absent");
  EndpointMessage message;
  if (section->data.size() <= sizeof(message.info) ||
      section->data.size() > sizeof(message.info) + kLargestWorkerAddress)
    return corrupt("endpoint: {} bytes, it has {} and an address of 1 to {}", section->data.size(),
                   sizeof(message.info), kLargestWorkerAddress);
  message.info = load<EndpointInfo>(section->data.data());
  message.address = section->data.subspan(sizeof(message.info));
  TERRACE_RETURN_IF_ERROR(check_largest_frame("endpoint", std::min(message.info.window, kLargestFrame)));
  return message;
}

Result<Hello> read_hello(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kHello));
  TERRACE_ASSIGN_OR_RETURN(const Hello hello, read_struct<Hello>(frame, SectionTag::kHello));
  TERRACE_RETURN_IF_ERROR(check_largest_frame("hello", hello.largest_frame));
  TERRACE_RETURN_IF_ERROR(check_reserved("hello", hello.reserved));
  return hello;
}

Result<Welcome> read_welcome(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kWelcome));
  TERRACE_ASSIGN_OR_RETURN(const Welcome welcome, read_struct<Welcome>(frame, SectionTag::kWelcome));
  TERRACE_RETURN_IF_ERROR(check_largest_frame("welcome", welcome.largest_frame));
  TERRACE_RETURN_IF_ERROR(check_reserved("welcome", welcome.reserved));
  if (welcome.credit_frames == 0 || welcome.credit_bytes < kHeaderBytes)
    return corrupt("welcome: a grant of {} frames and {} bytes lets no batch through", welcome.credit_frames,
                   welcome.credit_bytes);
  return welcome;
}

Result<Busy> read_busy(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kBusy));
  TERRACE_ASSIGN_OR_RETURN(const Busy busy, read_struct<Busy>(frame, SectionTag::kBusy));
  TERRACE_RETURN_IF_ERROR(check_reserved("busy", busy.reserved));
  return busy;
}

Result<ErrorMessage> read_error(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kError));
  const Section* section = frame.find(SectionTag::kError);
  if (section == nullptr) return corrupt("error frame: section error is absent");
  if (section->data.size() < sizeof(std::uint32_t))
    return corrupt("error frame: section error has {} bytes, at least 4 are expected", section->data.size());
  const auto code = load<std::uint32_t>(section->data.data());
  if (code > static_cast<std::uint32_t>(ErrorCode::kInternal))
    return corrupt("error frame: code {} is not known", code);
  const auto text = section->data.subspan(sizeof(std::uint32_t));
  return ErrorMessage{static_cast<ErrorCode>(code),
                      printable({reinterpret_cast<const char*>(text.data()), text.size()}, kMaxErrorText)};
}

Result<SlabPieceView> read_slab_piece(const Frame& frame) {
  TERRACE_RETURN_IF_ERROR(expect_type(frame, FrameType::kSlab));
  SlabPieceView view;
  TERRACE_ASSIGN_OR_RETURN(view.piece, read_struct<SlabPiece>(frame, SectionTag::kSlab));
  const Section* section = frame.find(SectionTag::kSlabBytes);
  if (section == nullptr) return corrupt("slab frame: section slab_bytes is absent");
  view.data = section->data;
  const SlabPiece& piece = view.piece;
  if (view.data.empty() || piece.offset > piece.slab_bytes || view.data.size() > piece.slab_bytes - piece.offset)
    return corrupt("slab frame: layer {} expert {}: {} bytes at offset {} of a slab of {}", piece.layer, piece.expert,
                   view.data.size(), piece.offset, piece.slab_bytes);
  return view;
}

}  // namespace terrace::wire
