// A frame on its way out together with everything its parts point to, and where such frames are kept for reuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/frame.h"
#include "common/wire/messages.h"

namespace terrace::node {

// Bytes that are written before they are read: what is filled in on growing would be written twice.
class FrameBytes {
 public:
  FrameBytes() = default;
  FrameBytes(const FrameBytes&) = delete;
  FrameBytes& operator=(const FrameBytes&) = delete;

  // The first `size` bytes, undefined where there were fewer before, and all of them where memory had to grow.
  std::byte* resize(std::size_t size) {
    if (size > capacity_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
      capacity_ = size;
    }
    size_ = size;
    return bytes_.get();
  }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  operator std::span<const std::byte>() const { return {bytes_.get(), size_}; }
  void swap(FrameBytes& other) {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Stays where it is from send() to kSent. What is not used by a frame's type is empty.
struct OutFrame {
  wire::FrameHeader header;

  // kReply
  wire::ReplyInfo reply;
  wire::ReplyForm form = wire::ReplyForm::kSum;
  FrameBytes data;                         // packed sums, or slots
  std::size_t widest_bytes = 0;            // that `data` may have, whatever the values are
  std::vector<std::uint16_t> failed_rows;  // of the batch, rising

  // kError
  std::string text;

  wire::FrameBuilder builder;

  // Of its memory what this reply makes it hold: room for values wider than they came out is held as well, what a
  // larger reply before it left is not this one's.
  std::size_t held_bytes() const { return std::min(data.capacity(), widest_bytes); }
};
using OutFramePtr = std::unique_ptr<OutFrame>;

// Frames that were sent keep their memory, up to kMostKept in all, and are used again: nothing is allocated once the
// busiest moment was seen. Any thread.
class FramePool {
 public:
  // Replies at their widest for a few prompts; what goes beyond is given back, since sessions end and pools do not.
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;

  OutFramePtr take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<OutFrame>();
    OutFramePtr frame = std::move(free_.back());
    free_.pop_back();
    kept_ -= frame->data.capacity();
    return frame;
  }

  void give(OutFramePtr frame) {
    frame->header = {};
    frame->data.resize(0);
    frame->widest_bytes = 0;
    frame->failed_rows.clear();
    FrameBytes dropped;  // ends outside the lock
    const std::lock_guard lock(mutex_);
    if (kept_ + frame->data.capacity() > kMostKept) dropped.swap(frame->data);
    kept_ += frame->data.capacity();
    free_.push_back(std::move(frame));
  }

  // Bytes of the frames that are not in use, and how many these are.
  std::size_t kept_bytes() {
    const std::lock_guard lock(mutex_);
    return kept_;
  }
  std::size_t kept_frames() {
    const std::lock_guard lock(mutex_);
    return free_.size();
  }

 private:
  std::mutex mutex_;
  std::size_t kept_ = 0;
  std::vector<OutFramePtr> free_;
};

}  // namespace terrace::node
