// A frame on its way out together with everything its parts point to, and where such frames are kept for reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/wire/frame.h"
#include "common/wire/messages.h"

namespace terrace::node {

// Stays where it is from send() to kSent. What is not used by a frame's type is empty.
struct OutFrame {
  wire::FrameHeader header;

  // kReply
  wire::ReplyInfo reply;
  wire::ReplyForm form = wire::ReplyForm::kSum;
  std::vector<std::byte> data;             // packed sums, or slots
  std::vector<std::uint16_t> failed_rows;  // of the batch, rising

  // kError
  std::string text;

  wire::FrameBuilder builder;
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
    frame->data.clear();
    frame->failed_rows.clear();
    std::vector<std::byte> dropped;  // ends outside the lock
    const std::lock_guard lock(mutex_);
    if (kept_ + frame->data.capacity() > kMostKept) dropped.swap(frame->data);
    kept_ += frame->data.capacity();
    free_.push_back(std::move(frame));
  }

  // Bytes of the frames that are not in use.
  std::size_t kept_bytes() {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  std::mutex mutex_;
  std::size_t kept_ = 0;
  std::vector<OutFramePtr> free_;
};

}  // namespace terrace::node
