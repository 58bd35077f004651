#include "common/transport/ucx/outbox.h"

#include <algorithm>

namespace terrace::transport {

bool Outbox::take_credit(const MessageHeader& header) {
  if (header.released > bytes_submitted_ || header.taken > submitted_) return false;
  // Messages may overtake each other.
  peer_released_ = std::max(peer_released_, header.released);
  peer_taken_ = std::max(peer_taken_, header.taken);
  return true;
}

bool Outbox::has_credit(std::uint64_t bytes) const {
  if (submitted_ - peer_taken_ >= kFramesAhead) return false;
  // A frame that the peer never has room for is sent, as over any other transport: it is the peer that refuses it.
  return bytes > window_ || bytes <= window_ - std::min(window_, bytes_submitted_ - peer_released_);
}

bool Outbox::submit(const Endpoint& endpoint, Inbox& inbox) {
  while (can_submit()) {
    const SendTicket ticket = submitted_ + 1;
    Slot& place = slot(ticket);
    place.header = header(submitted_, inbox);
    const std::span<const Part> parts = sends_.parts(ticket);
    place.pieces.clear();
    place.pieces.reserve(std::max(kUsualParts, parts.size()));
    for (const Part part : parts) place.pieces.push_back({const_cast<std::byte*>(part.data()), part.size()});
    ++submitted_;
    bytes_submitted_ += sends_.bytes(ticket);
    if (!send(endpoint, MessageId::kFrame, place)) return false;
    inbox.told_credit();
  }
  return true;
}

void Outbox::submit_credit(const Endpoint& endpoint, Inbox& inbox) {
  credit_.header = header(0, inbox);
  inbox.told_credit();
  (void)send(endpoint, MessageId::kCredit, credit_);  // an endpoint that takes nothing is told to be lost
}

bool Outbox::send(const Endpoint& endpoint, MessageId id, Slot& place) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
  param.cb.send = &on_sent;
  param.user_data = &place;
  // One piece needs no list, and UCX is quicker without.
  const bool listed = place.pieces.size() > 1;
  param.datatype = listed ? ucp_dt_make_iov() : ucp_dt_make_contig(1);
  const void* const buffer = listed ? place.pieces.data() : place.pieces.empty() ? nullptr : place.pieces[0].buffer;
  const std::size_t count = listed ? place.pieces.size() : place.pieces.empty() ? 0 : place.pieces[0].length;
  place.outbox = this;
  place.open = true;
  ++n_open_;
  const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint.handle, static_cast<unsigned>(id), &place.header,
                                                   sizeof(place.header), buffer, count, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) end(place);
  return !UCS_PTR_IS_ERR(request);
}

void Outbox::on_sent(void* request, ucs_status_t, void* slot) {
  ucp_request_free(request);
  auto& place = *static_cast<Slot*>(slot);
  place.outbox->end(place);
}

// Sends end in any order and are told in theirs.
void Outbox::end(Slot& place) {
  place.open = false;
  --n_open_;
  while (sends_.has_unsent() && sends_.oldest_unsent() <= submitted_ && !slot(sends_.oldest_unsent()).open) {
    const std::uint64_t bytes = sends_.front_bytes();
    bytes_sent_ += bytes;
    frames_sent_ += sends_.consume(bytes);
  }
}

}  // namespace terrace::transport
