// The sends of one connection: those that wait for the peer's credit, and those that UCX has. Only for
// common/transport/ucx.
//
// Threads  One at a time. Memory: kept, no allocation of ours after warm-up.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/transport/connection.h"
#include "common/transport/send_queue.h"
#include "common/transport/ucx/inbox.h"
#include "common/transport/ucx/messages.h"
#include "common/transport/ucx/worker.h"

namespace terrace::transport {

class Outbox {
 public:
  explicit Outbox(std::size_t max_open_sends) : sends_(max_open_sends), slots_(max_open_sends) {}
  Outbox(Outbox&&) = delete;  // UCX knows its slots

  // As SendQueue.
  Result<SendTicket> push(std::span<const Part> parts) { return sends_.push(parts); }
  std::size_t report_sent(std::span<Event> out) { return sends_.report_sent(out); }
  bool has_sent() const { return sends_.has_sent(); }
  bool report_closed(std::span<Event> out) const { return sends_.report_closed(out); }

  // The connection is up: where frames go, and how many bytes of them the peer has room for.
  void set_peer(std::uint64_t token, std::uint64_t window) { token_ = token, window_ = window; }
  // What a message of the peer says of frames sent to it. False: no peer of ours can say so.
  bool take_credit(const MessageHeader& header);
  // Gives UCX all that the peer has credit for; with each the inbox's credit. True: UCX took it.
  bool submit(const Endpoint& endpoint, Inbox& inbox);
  // submit() would do something.
  bool can_submit() const { return submitted_ < sends_.last() && has_credit(sends_.bytes(submitted_ + 1)); }
  // One message with the inbox's credit, if none is on its way.
  void submit_credit(const Endpoint& endpoint, Inbox& inbox);
  bool can_submit_credit() const { return !credit_.open; }

  // Requests that UCX has: their callbacks come, and what they read must stay until then.
  std::size_t n_open() const { return n_open_; }
  // Every send ends; n_open() is 0.
  void give_up() { sends_.give_up(); }
  std::uint64_t frames_submitted() const { return submitted_; }
  MessageHeader header(std::uint64_t number, const Inbox& inbox) const {
    return {token_, number, inbox.released(), inbox.taken()};
  }
  // Of frames that have left.
  std::uint64_t frames_sent() const { return frames_sent_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Slot {
    Outbox* outbox = nullptr;
    bool open = false;  // with UCX
    MessageHeader header;
    std::vector<ucp_dt_iov_t> pieces;
  };
  bool has_credit(std::uint64_t bytes) const;
  bool send(const Endpoint& endpoint, MessageId id, Slot& slot);
  Slot& slot(SendTicket ticket) { return slots_[ticket % slots_.size()]; }
  static void on_sent(void* request, ucs_status_t, void* slot);
  void end(Slot& slot);

  SendQueue sends_;
  std::vector<Slot> slots_;  // [max_open_sends], by ticket modulo their number
  Slot credit_;
  std::uint64_t token_ = 0;
  std::uint64_t window_ = 0;
  SendTicket submitted_ = 0;
  std::uint64_t bytes_submitted_ = 0;
  std::uint64_t peer_released_ = 0;
  std::uint64_t peer_taken_ = 0;
  std::size_t n_open_ = 0;
  std::uint64_t frames_sent_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace terrace::transport
