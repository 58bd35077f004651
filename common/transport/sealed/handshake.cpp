#include "common/transport/sealed/handshake.h"

#include <fmt/format.h>

#include <optional>

#include "common/security/constant_time.h"

namespace terrace::transport {
namespace {

Error unexpected(const wire::Frame& frame, wire::FrameType due) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("a {} frame came where {} is due", wire::name(frame.header.type), wire::name(due)));
}

}  // namespace

wire::FrameBuilder& Handshake::begin(wire::FrameType type) {
  TERRACE_CHECK(n_frames_ < frames_.size(), "a handshake has two words an end at most");
  wire::FrameHeader header;
  header.type = type;
  header.lane = static_cast<wire::Lane>(link_.lane);
  header.session = link_.session;
  wire::FrameBuilder& builder = frames_[n_frames_++];
  builder.begin(header);
  return builder;
}

std::span<const Part> Handshake::open() {
  if (!is_node()) return {};
  wire::FrameBuilder& builder = begin(wire::FrameType::kChallenge);
  wire::add_challenge(builder, {random_});
  return builder.finish();
}

Result<std::span<const Part>> Handshake::take(std::span<const std::byte> bytes) {
  TERRACE_ASSIGN_OR_RETURN(const wire::Frame frame, wire::decode_frame(bytes));
  switch (next_) {
    case Next::kChallenge:
      return answer_challenge(frame);
    case Next::kProof:
      return answer_proof(frame);
    case Next::kAccept:
      return take_accept(frame);
    case Next::kNothing:
      break;
  }
  return Error(ErrorCode::kInternal, "the handshake is over");
}

// Nobody vouches for an error before accept; it can do no more than a cut.
Result<std::span<const Part>> Handshake::answer_challenge(const wire::Frame& frame) {
  if (frame.header.type == wire::FrameType::kError) {
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    return Error(message.code, message.text);
  }
  if (frame.header.type != wire::FrameType::kChallenge) return unexpected(frame, wire::FrameType::kChallenge);
  TERRACE_ASSIGN_OR_RETURN(const wire::Challenge challenge, wire::read_challenge(frame));
  TERRACE_ASSIGN_OR_RETURN(secrets_, derive_secrets(link_, random_, challenge.random));
  wire::FrameBuilder& builder = begin(wire::FrameType::kProof);
  wire::Proof proof;
  proof.random = random_;
  proof.code = secrets_.coordinator_proof;
  proof.socket_index = link_.socket_index;
  wire::add_proof(builder, proof);
  next_ = Next::kAccept;
  return builder.finish();
}

Result<std::span<const Part>> Handshake::answer_proof(const wire::Frame& frame) {
  if (frame.header.type != wire::FrameType::kProof) return unexpected(frame, wire::FrameType::kProof);
  TERRACE_ASSIGN_OR_RETURN(const wire::Proof proof, wire::read_proof(frame));
  const std::optional<LinkKey> known = find_key_(frame.header.session);
  if (known) link_ = *known;
  link_.session = frame.header.session;
  link_.lane = static_cast<std::uint8_t>(frame.header.lane);
  link_.socket_index = proof.socket_index;
  TERRACE_ASSIGN_OR_RETURN(secrets_, derive_secrets(link_, proof.random, random_));
  // One answer for an unknown session and a wrong proof, after the same work: a stranger learns nothing from it.
  const bool proven = security::constant_time_equal(secrets_.coordinator_proof, proof.code);
  if (!known || !proven) return Error(ErrorCode::kRefused, "no session of this node has this id and key");
  wire::FrameBuilder& builder = begin(wire::FrameType::kAccept);
  wire::add_accept(builder, {secrets_.node_proof});
  next_ = Next::kNothing;
  return builder.finish();
}

Result<std::span<const Part>> Handshake::take_accept(const wire::Frame& frame) {
  if (frame.header.type == wire::FrameType::kError) {
    TERRACE_ASSIGN_OR_RETURN(const wire::ErrorMessage message, wire::read_error(frame));
    return Error(message.code, message.text);
  }
  if (frame.header.type != wire::FrameType::kAccept) return unexpected(frame, wire::FrameType::kAccept);
  TERRACE_ASSIGN_OR_RETURN(const wire::Accept accept, wire::read_accept(frame));
  if (frame.header.session != link_.session || frame.header.lane != static_cast<wire::Lane>(link_.lane))
    return Error(ErrorCode::kCorrupt, fmt::format("accept is for session {:016x}, lane {}", frame.header.session,
                                                  wire::name(frame.header.lane)));
  if (!security::constant_time_equal(secrets_.node_proof, accept.code))
    return Error(ErrorCode::kRefused,
                 "it does not prove that it gave out the session's key: something else answers at the data port, or "
                 "stands between");
  next_ = Next::kNothing;
  return std::span<const Part>();
}

std::span<const Part> Handshake::refusal(const Error& why) {
  refusal_ = why.text();
  wire::FrameHeader header;
  header.type = wire::FrameType::kError;
  wire::FrameBuilder& builder = frames_.back();
  builder.begin(header);
  wire::add_error(builder, why.code(), refusal_);
  return builder.finish();
}

}  // namespace terrace::transport
