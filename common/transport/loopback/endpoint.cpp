#include "common/transport/loopback/endpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/wire/frame.h"

namespace terrace::transport {
namespace {

void copy_parts(std::span<const Part> parts, std::span<std::byte> out) {
  for (const Part part : parts) {
    const std::size_t n = std::min(part.size(), out.size());
    std::memcpy(out.data(), part.data(), n);
    out = out.subspan(n);
  }
}

// What a receiver that sees only a stream of bytes would find out: the header must be one, and say the length.
Status check_frame(std::span<const Part> parts, std::uint64_t bytes, std::uint64_t largest_frame) {
  std::array<std::byte, wire::kHeaderBytes> header{};
  copy_parts(parts, header);
  return wire::check_frame_length(header, bytes, largest_frame);
}

}  // namespace

Endpoint::Delivery Endpoint::deliver(std::span<const Part> parts, std::uint64_t bytes) {
  std::span<std::byte> frame;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || failure_) return Delivery::kGone;
    if (const Status status = check_frame(parts, bytes, options_.largest_frame); !status.ok()) {
      failure_ = status.error();
      event_.signal();
      return Delivery::kGone;
    }
    sender_waits_ = !pool_.has_room(bytes);
    if (sender_waits_) return Delivery::kNoRoom;
    frame = pool_.acquire(bytes);
  }
  copy_parts(parts, frame);  // unlocked: the receiver goes on with other frames meanwhile
  const std::lock_guard lock(mutex_);
  frames_.push_back(frame);
  event_.signal();
  return Delivery::kDelivered;
}

void Endpoint::wake() {
  const std::lock_guard lock(mutex_);
  event_.signal();
}

void Endpoint::clear_event() {
  const std::lock_guard lock(mutex_);
  event_.clear();
}

void Endpoint::set_largest_frame(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  options_.largest_frame = std::min(bytes, options_.receive_window);
}

std::optional<std::span<const std::byte>> Endpoint::next_frame() {
  const std::lock_guard lock(mutex_);
  if (next_frame_ == frames_.size()) return std::nullopt;
  const auto frame = frames_[next_frame_++];
  // Taken entries go once they are half of the list, so that it stays short though it may never run empty.
  if (2 * next_frame_ >= frames_.size()) {
    frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(next_frame_));
    next_frame_ = 0;
  }
  return frame;
}

bool Endpoint::has_frame() const {
  const std::lock_guard lock(mutex_);
  return next_frame_ < frames_.size();
}

bool Endpoint::release(std::span<const std::byte> frame) {
  const std::lock_guard lock(mutex_);
  pool_.release(frame);
  return std::exchange(sender_waits_, false);
}

std::optional<Error> Endpoint::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Endpoint::leave() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
}

bool Endpoint::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

}  // namespace terrace::transport
