#include "common/transport/sealed/sealed_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/wire/frame.h"

namespace terrace::transport {

static_assert(wire::kSealBytes == security::kTagBytes && wire::kSealBytes % wire::kAlignment == 0);

namespace {

// A part from this size on is encrypted from where it lies; smaller ones are copied first and encrypted together, which
// costs less than a call of the cipher for each.
constexpr std::size_t kEncryptedWhereItLies = 4096;

std::span<std::byte> writable(std::span<const std::byte> frame) {
  return {const_cast<std::byte*>(frame.data()), frame.size()};
}

// Of a frame that leaves or has come: both ends agree on the header as it travels, so it is changed while it does not.
void change_body_length(std::span<std::byte> frame, std::int64_t by) {
  const std::uint32_t bytes = wire::body_length(frame);
  wire::set_body_length(frame, static_cast<std::uint32_t>(bytes + by));
}

}  // namespace

SealedConnection::SealedConnection(std::unique_ptr<Connection> inner, std::unique_ptr<Handshake> handshake,
                                   std::size_t max_open_sends, std::uint64_t most_frames)
    : pool_(2 * wire::kLargestFrame),
      handshake_(std::move(handshake)),
      inner_(std::move(inner)),
      most_frames_(most_frames),
      sends_(max_open_sends),
      in_flight_(max_open_sends) {
  if (const auto words = handshake_->open(); !words.empty()) say(words);
}

// ---- handshake -----------------------------------------------------------------------------------------------------

// What cannot be sent shows as the end of the link.
void SealedConnection::say(std::span<const Part> words) {
  if (inner_->send(words).ok()) ++words_unsent_;
}

void SealedConnection::take_words(std::span<const std::byte> frame) {
  ++words_received_;
  const auto answer = handshake_->take(frame);
  if (!answer.ok()) {
    if (handshake_->is_node()) say(handshake_->refusal(answer.error()));
    return close_because(answer.error().in(peer_name()));
  }
  if (!answer->empty()) say(*answer);
  if (!handshake_->done()) return;
  if (const Status started = start_sealing(); !started.ok()) close_because(started.error().in(peer_name()));
}

Status SealedConnection::start_sealing() {
  const LinkKey& link = handshake_->link();
  if (link.cipher != security::Cipher::kPlain) {
    const LinkSecrets& secrets = handshake_->secrets();
    const bool node = handshake_->is_node();
    TERRACE_ASSIGN_OR_RETURN(sealer_,
                             security::Sealer::create(link.cipher, node ? secrets.to_coordinator : secrets.to_node));
    TERRACE_ASSIGN_OR_RETURN(opener_,
                             security::Opener::create(link.cipher, node ? secrets.to_node : secrets.to_coordinator));
  }
  security_ = {true, link.session, link.lane, link.socket_index, link.cipher, sealing() ? wire::kSealBytes : 0};
  phase_ = Phase::kProven;
  return {};
}

// ---- out -----------------------------------------------------------------------------------------------------------

Result<SendTicket> SealedConnection::send(std::span<const Part> parts) {
  if (state_ != State::kOpen) return Error(ErrorCode::kPeerGone, reason_.text());
  auto ticket = sends_.push(parts);
  if (!ticket.ok()) return ticket.error().in(peer_name());
  // A node speaks before the proof only to hang up: whoever is there has no keys yet, and will get none.
  if (phase_ == Phase::kHandshake && handshake_->is_node()) phase_ = Phase::kGivenUp;
  hand_on();
  return ticket;
}

// Gives the inner connection what is queued; of sealed frames no more than the link can soon take, so that a slow peer
// costs little memory.
void SealedConnection::hand_on() {
  if (phase_ == Phase::kHandshake) return;
  while (state_ == State::kOpen && handed_on_ < sends_.last() && bytes_in_flight_ < kSealAhead)
    if (!hand_on_next()) return;
}

// False: the inner connection takes nothing. That it is lost comes as an event.
bool SealedConnection::hand_on_next() {
  const SendTicket ticket = handed_on_ + 1;
  if (sealing() && n_sealed_ == most_frames_) {
    close_because(Error(ErrorCode::kPeerGone,
                        fmt::format("{}: {} frames are sealed, the most for one connection", peer_name(), n_sealed_)));
    return false;
  }
  std::span<const std::byte>& sealed = in_flight_[ticket % in_flight_.size()];
  sealed = sealing() ? seal(ticket) : std::span<const std::byte>();
  const auto taken = inner_->send(sealing() ? std::span<const Part>(&sealed, 1) : sends_.parts(ticket));
  if (!taken.ok()) {
    TERRACE_CHECK(taken.error().code() != ErrorCode::kBusy, "the inner connection takes as many sends as this one");
    if (sealing()) pool_.release(sealed);
    return false;
  }
  bytes_in_flight_ += sealed.size();
  ++handed_on_;
  return true;
}

std::span<const std::byte> SealedConnection::seal(SendTicket ticket) {
  const std::uint64_t bytes = sends_.bytes(ticket);
  TERRACE_CHECK(bytes >= wire::kHeaderBytes, "what is to be sealed has no header");
  const std::span<std::byte> frame = pool_.acquire(bytes + wire::kSealBytes);
  const std::span<std::byte> body = frame.subspan(wire::kHeaderBytes, bytes - wire::kHeaderBytes);
  std::size_t header_left = wire::kHeaderBytes;
  std::size_t copied = 0;     // bytes of the body that lie in the frame
  std::size_t encrypted = 0;  // of these
  const auto begin = [&] {
    change_body_length(frame, static_cast<std::int64_t>(wire::kSealBytes));
    sealer_->begin(n_sealed_++, frame.first(wire::kHeaderBytes));
  };
  const auto encrypt_copied = [&] {
    sealer_->add(body.subspan(encrypted, copied - encrypted), body.data() + encrypted);
    encrypted = copied;
  };
  for (Part part : sends_.parts(ticket)) {
    if (header_left > 0) {
      const std::size_t n = std::min(header_left, part.size());
      std::memcpy(frame.data() + wire::kHeaderBytes - header_left, part.data(), n);
      part = part.subspan(n);
      header_left -= n;
      if (header_left == 0) begin();
    }
    if (part.size() >= kEncryptedWhereItLies) {
      encrypt_copied();
      sealer_->add(part, body.data() + copied);
      encrypted = copied += part.size();
    } else if (!part.empty()) {
      std::memcpy(body.data() + copied, part.data(), part.size());
      copied += part.size();
    }
  }
  encrypt_copied();
  sealer_->finish(frame.last<wire::kSealBytes>());
  return frame;
}

void SealedConnection::end_oldest_send() {
  if (words_unsent_ > 0) {
    --words_unsent_;
  } else {
    const std::span<const std::byte> sealed = in_flight_[sends_.oldest_unsent() % in_flight_.size()];
    if (!sealed.empty()) pool_.release(sealed);
    bytes_in_flight_ -= sealed.size();
    sends_.consume(sends_.front_bytes());
  }
  if (phase_ != Phase::kHandshake && words_unsent_ == 0) handshake_.reset();
}

// ---- in ------------------------------------------------------------------------------------------------------------

std::size_t SealedConnection::poll(std::span<Event> out) {
  if (state_ == State::kReported) return 0;
  std::size_t n = sends_.report_sent(out);
  if (state_ == State::kOpen) n += read(out.subspan(n));
  hand_on();
  n += sends_.report_sent(out.subspan(n));
  return n + report_closed(out.subspan(n));
}

// Events of the inner connection, those kept that are for the layers above.
std::size_t SealedConnection::read(std::span<Event> out) {
  std::size_t n = 0;
  while (n < out.size() && state_ == State::kOpen) {
    const std::span<Event> room = out.subspan(n);
    const std::size_t got = inner_->poll(room);
    for (Event& event : room.first(got))
      if (take(event)) out[n++] = event;
    n += sends_.report_sent(out.subspan(n));  // before more is read: with room for one event, too
    if (got < room.size()) break;
  }
  return n;
}

// True: `event` is for the layers above.
bool SealedConnection::take(Event& event) {
  switch (event.kind) {
    case Event::Kind::kSent:
      if (state_ == State::kOpen) end_oldest_send();
      return false;  // told by sends_
    case Event::Kind::kReceived:
      return take_frame(event);
    case Event::Kind::kClosed:
      break;
  }
  close_because(inner_->close_reason());
  return false;
}

bool SealedConnection::take_frame(Event& event) {
  const std::span<const std::byte> frame = event.frame;
  if (state_ == State::kOpen && phase_ == Phase::kProven) {
    const Status fine = sealing() ? open(writable(frame)) : check_header(frame);
    if (fine.ok()) {
      event.frame = frame.first(frame.size() - security_.seal_bytes);
      return true;
    }
    close_because(fine.error().in(peer_name()));
  } else if (state_ == State::kOpen && phase_ == Phase::kHandshake) {
    take_words(frame);
  }
  inner_->release(frame);
  return false;
}

Status SealedConnection::open(std::span<std::byte> frame) {
  const std::uint64_t number = n_opened_++;
  const auto fails = [&](const char* why) {
    return Error(ErrorCode::kCorrupt, fmt::format("sealed frame {} of lane {}: {}", number,
                                                  wire::name(static_cast<wire::Lane>(security_.lane)), why));
  };
  if (number >= most_frames_) return fails("a connection has no more");
  if (frame.size() < wire::kHeaderBytes + wire::kSealBytes) return fails("it has no room for its tag");
  const std::span<std::byte> body =
      frame.subspan(wire::kHeaderBytes, frame.size() - wire::kHeaderBytes - wire::kSealBytes);
  if (!opener_->open(number, frame.first(wire::kHeaderBytes), body, frame.last<wire::kSealBytes>()))
    return fails("it does not open: it was changed, is not the next one, or was sealed for another connection");
  change_body_length(frame, -static_cast<std::int64_t>(wire::kSealBytes));
  return {};
}

// Of an authenticated connection without a cipher: its frames bring their checksum.
Status SealedConnection::check_header(std::span<const std::byte> frame) const {
  if (frame.size() < wire::kHeaderBytes || (wire::flags(frame) & wire::kFlagNoChecksum) == 0) return {};
  return Error(ErrorCode::kCorrupt, "a frame without a checksum on a connection that is not sealed");
}

void SealedConnection::release(std::span<const std::byte> frame) {
  inner_->release({frame.data(), frame.size() + security_.seal_bytes});
}

bool SealedConnection::near_its_end() const {
  return sealing() && std::max(n_sealed_, n_opened_) >= most_frames_ - frames_before_end(most_frames_);
}

UnfinishedFrame SealedConnection::unfinished() const {
  if (state_ != State::kOpen) return {};
  UnfinishedFrame frame = inner_->unfinished();
  if (frame.bytes > 0) frame.number -= words_received_;
  return frame;
}

// ---- ends ----------------------------------------------------------------------------------------------------------

short SealedConnection::wait_events() {
  const bool ready = state_ == State::kClosed || sends_.has_sent();
  return static_cast<short>(inner_->wait_events() | (ready ? POLLOUT : 0));
}

void SealedConnection::close() { close_because(Error(ErrorCode::kPeerGone, peer_name() + ": closed by this side")); }

// The inner connection reads nothing any more that send() borrowed.
void SealedConnection::close_because(Error reason) {
  if (state_ != State::kOpen) return;
  state_ = State::kClosed;
  reason_ = std::move(reason);
  inner_->close();
  sends_.give_up();
}

std::size_t SealedConnection::report_closed(std::span<Event> out) {
  if (state_ != State::kClosed || !sends_.report_closed(out)) return 0;
  state_ = State::kReported;
  // Its end lets go of the descriptor.
  std::array<Event, 16> events;
  while (const std::size_t n = inner_->poll(events))
    for (const Event& event : std::span(events).first(n))
      if (event.kind == Event::Kind::kReceived) inner_->release(event.frame);
  return 1;
}

}  // namespace terrace::transport
