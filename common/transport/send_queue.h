// The sends of a connection that are not the caller's again: what is still to be written, and which kSent is to be
// reported. Frames leave in order, so two counters say it all. Shared by the transports.
//
// Threads  One at a time. Memory: lists are kept and used again, as many as sends were open at once: no allocation
// after
//          warm-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/transport/connection.h"

namespace terrace::transport {

using Part = std::span<const std::byte>;

// A batch has 13 pieces: with room for them a slot's list grows once, not each time a longer one comes by.
inline constexpr std::size_t kUsualParts = 16;

class SendQueue {
 public:
  explicit SendQueue(std::size_t max_open) : slots_(max_open) { spare_.reserve(max_open); }

  // Copies the list; what it points to is borrowed until report_sent() gives the ticket. kBusy: max_open are open.
  Result<SendTicket> push(std::span<const Part> parts);

  bool has_unsent() const { return done_ < last_; }
  // The list and length of the oldest unsent frame.
  std::span<const Part> front() const { return slot(done_ + 1).parts; }
  std::uint64_t front_bytes() const { return slot(done_ + 1).bytes; }
  // The same of any unsent frame, for those who hand frames on before they are sent.
  SendTicket last() const { return last_; }
  SendTicket oldest_unsent() const { return done_ + 1; }
  std::span<const Part> parts(SendTicket ticket) const { return slot(ticket).parts; }
  std::uint64_t bytes(SendTicket ticket) const { return slot(ticket).bytes; }
  // The next bytes to be written, of as many frames as `out` holds parts; returns the parts used.
  std::size_t gather(std::span<Part> out) const;
  // Takes off bytes that were written; returns how many frames they finished.
  std::uint64_t consume(std::uint64_t bytes);
  // Nothing more will be written: every open send ends.
  void give_up() { done_ = last_; }

  // kSent for sends that have ended, each once and in order, as many as `out` holds; returns how many.
  std::size_t report_sent(std::span<Event> out);
  bool has_sent() const { return reported_ < done_; }
  // kClosed into `out`, asked for when the connection has closed: true once it is given, which is after the last kSent.
  bool report_closed(std::span<Event> out) const;

 private:
  struct Slot {
    std::vector<Part> parts;  // none empty
    std::uint64_t bytes = 0;
  };
  const Slot& slot(SendTicket ticket) const { return slots_[ticket % slots_.size()]; }

  Slot& slot(SendTicket ticket) { return slots_[ticket % slots_.size()]; }

  std::vector<Slot> slots_;  // [max_open], by ticket modulo their number
  std::vector<std::vector<Part>> spare_;
  SendTicket last_ = 0;          // pushed
  SendTicket done_ = 0;          // written or given up
  SendTicket reported_ = 0;      // reported <= done <= last
  std::size_t part_ = 0;         // of the oldest unsent frame: the part
  std::size_t part_offset_ = 0;  // and the byte in it that are written next
};

}  // namespace terrace::transport
