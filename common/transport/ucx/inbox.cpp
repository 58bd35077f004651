#include "common/transport/ucx/inbox.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "common/wire/frame.h"

namespace terrace::transport {
namespace {

Error corrupt(std::string text) { return Error(ErrorCode::kCorrupt, std::move(text)); }

}  // namespace

ucs_status_t Inbox::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
  return UCS_OK;  // what came is dropped
}

ucs_status_t Inbox::on_frame(const Channel::Message& message) {
  if (failure_) return UCS_OK;
  const std::uint64_t number = message.header.number;
  const std::uint64_t bytes = message.bytes;
  if (number < taken_ || number - taken_ >= kFramesAhead || slot(number).state != State::kEmpty)
    return fail(corrupt(
        fmt::format("frame {} came where {} to {} may come, each once", number, taken_, taken_ + kFramesAhead - 1)));
  if (message.rendezvous ? bytes < wire::kHeaderBytes || bytes > largest_frame_ : bytes == 0)
    return fail(corrupt(
        fmt::format("frame of {} bytes, at least {} and at most {} here", bytes, wire::kHeaderBytes, largest_frame_)));
  if (!message.rendezvous) {
    const std::span<const std::byte> header(static_cast<const std::byte*>(message.data), bytes);
    if (const Status status = wire::check_frame_length(header, bytes, largest_frame_); !status.ok())
      return fail(status.error());
  }
  if (!pool_.has_room(bytes))
    return fail(corrupt(fmt::format("frame of {} bytes is more than this side gave credit for", bytes)));
  Slot& place = slot(number);
  place.inbox = this;
  place.frame = pool_.acquire(bytes);
  received_ += bytes;
  come_ = std::max(come_, number + 1);
  if (message.rendezvous) {
    place.state = State::kAnnounced;
    place.data = message.data;
    ++announced_;
    return UCS_INPROGRESS;
  }
  std::memcpy(place.frame.data(), message.data, bytes);
  copied_ += bytes;
  place.state = State::kReady;
  return UCS_OK;
}

void Inbox::fetch(ucp_worker_h worker) {
  for (std::uint64_t number = taken_; announced_ > 0 && number < come_; ++number)
    if (slot(number).state == State::kAnnounced) fetch(worker, slot(number));
}

void Inbox::fetch(ucp_worker_h worker, Slot& place) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &on_fetched;
  param.user_data = &place;
  place.state = State::kFetching;
  --announced_;
  ++fetching_;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker, place.data, place.frame.data(), place.frame.size(), &param);
  if (UCS_PTR_IS_ERR(request)) finish_fetch(place, UCS_PTR_STATUS(request));
}

void Inbox::drop_announced(ucp_worker_h worker) {
  for (Slot& place : slots_) {
    if (place.state != State::kAnnounced) continue;
    ucp_am_data_release(worker, place.data);
    place.state = State::kEmpty;
    --announced_;
  }
}

void Inbox::on_fetched(void* request, ucs_status_t status, std::size_t, void* slot) {
  ucp_request_free(request);
  auto& place = *static_cast<Slot*>(slot);
  place.inbox->finish_fetch(place, status);
}

void Inbox::finish_fetch(Slot& place, ucs_status_t status) {
  --fetching_;
  place.state = State::kReady;
  if (status != UCS_OK) {
    fail(Error(ErrorCode::kPeerGone, fmt::format("lost in the middle of a frame: {}", text_of(status))));
    place.state = State::kEmpty;
    return;
  }
  const Status fits = wire::check_frame_length(place.frame, place.frame.size(), wire::kLargestFrame);
  if (fits.ok()) return;
  fail(fits.error());
  place.state = State::kEmpty;
}

std::optional<std::span<const std::byte>> Inbox::next() {
  Slot& place = slot(taken_);
  if (place.state != State::kReady) return std::nullopt;
  place.state = State::kEmpty;
  ++taken_;
  return std::exchange(place.frame, {});
}

void Inbox::release(std::span<const std::byte> frame) {
  pool_.release(frame);
  released_ += frame.size();
}

// Credit rides in every frame that goes the other way, so a message of its own is due only where the peer, by what it
// knows, has no room for a largest frame, or would soon run out of either.
bool Inbox::owes_credit() const {
  if (taken_ - told_taken_ >= kFramesAhead / 4) return true;
  const std::uint64_t untold = released_ - told_released_;
  if (untold == 0) return false;
  const std::uint64_t known_room = window_ - (received_ - told_released_);
  return untold >= window_ / 4 || known_room < largest_frame_;
}

}  // namespace terrace::transport
