#include "common/transport/send_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace terrace::transport {

Result<SendTicket> SendQueue::push(std::span<const Part> parts) {
  if (last_ - reported_ == slots_.size())
    return Error(ErrorCode::kBusy, fmt::format("{} sends are open, no more are allowed", slots_.size()));
  Slot& next = slot(last_ + 1);
  if (!spare_.empty()) {
    next.parts.swap(spare_.back());
    spare_.pop_back();
  }
  next.parts.clear();
  next.parts.reserve(std::max(kUsualParts, parts.size()));
  next.bytes = 0;
  for (const Part part : parts) {
    if (part.empty()) continue;
    next.parts.push_back(part);
    next.bytes += part.size();
  }
  TERRACE_CHECK(next.bytes > 0, "send() of nothing");
  return ++last_;
}

std::size_t SendQueue::gather(std::span<Part> out) const {
  std::size_t used = 0;
  std::size_t skip_parts = part_;
  std::size_t skip_bytes = part_offset_;
  for (SendTicket ticket = done_ + 1; ticket <= last_; ++ticket, skip_parts = 0) {
    for (const Part part : std::span(slot(ticket).parts).subspan(skip_parts)) {
      if (used == out.size()) return used;
      out[used++] = part.subspan(skip_bytes);
      skip_bytes = 0;
    }
  }
  return used;
}

std::uint64_t SendQueue::consume(std::uint64_t bytes) {
  const SendTicket before = done_;
  while (bytes > 0) {
    const auto& parts = slot(done_ + 1).parts;
    const std::uint64_t step = std::min<std::uint64_t>(bytes, parts[part_].size() - part_offset_);
    bytes -= step;
    part_offset_ += static_cast<std::size_t>(step);
    if (part_offset_ < parts[part_].size()) break;
    part_offset_ = 0;
    if (++part_ < parts.size()) continue;
    part_ = 0;
    ++done_;
  }
  return done_ - before;
}

std::size_t SendQueue::report_sent(std::span<Event> out) {
  std::size_t n = 0;
  while (n < out.size() && has_sent()) {
    out[n++] = {Event::Kind::kSent, ++reported_, {}};
    spare_.push_back(std::exchange(slot(reported_).parts, {}));
  }
  return n;
}

bool SendQueue::report_closed(std::span<Event> out) const {
  if (out.empty() || has_sent()) return false;
  out[0] = {Event::Kind::kClosed, 0, {}};
  return true;
}

}  // namespace terrace::transport
