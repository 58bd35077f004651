#include "common/transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/wire/frame.h"

namespace terrace::transport {

FrameReader::FrameReader(const Options& options)
    : largest_frame_(options.largest_frame),
      window_(options.receive_window),
      pool_(options.receive_window),
      ahead_(pool_.take_spare(kReadAhead)) {}

Result<std::optional<std::span<const std::byte>>> FrameReader::next_frame() {
  using Frame = std::optional<std::span<const std::byte>>;
  if (frame_.empty()) {
    if (ahead_bytes() < wire::kHeaderBytes) return Frame();
    if (length_ == 0) {
      const std::span<const std::byte> header(ahead_.get() + ahead_begin_, wire::kHeaderBytes);
      TERRACE_ASSIGN_OR_RETURN(length_, wire::frame_length(header, largest_frame_));
    }
    window_full_ = !pool_.has_room(length_);
    if (window_full_) return Frame();
    if (can_lend()) return ahead_bytes() < length_ ? Frame() : Frame(lend_ahead());
    start_frame();
  }
  if (filled_ < frame_.size()) return Frame();
  filled_ = 0;
  return Frame(std::exchange(frame_, {}));
}

// What lies behind the frame has to be copied then: no more of it than of the frame.
bool FrameReader::can_lend() const {
  return ahead_begin_ == 0 && length_ >= kLeastLent && length_ <= kReadAhead && ahead_bytes() <= 2 * length_;
}

std::span<std::byte> FrameReader::lend_ahead() {
  const std::span<std::byte> frame = pool_.lend(std::move(ahead_), kReadAhead, std::exchange(length_, 0));
  ahead_ = pool_.take_spare(kReadAhead);
  ahead_end_ -= frame.size();
  std::memcpy(ahead_.get(), frame.data() + frame.size(), ahead_end_);
  copied_ += ahead_end_;
  return frame;
}

void FrameReader::start_frame() {
  frame_ = pool_.acquire(std::exchange(length_, 0));
  filled_ = std::min(frame_.size(), ahead_bytes());
  std::memcpy(frame_.data(), ahead_.get() + ahead_begin_, filled_);
  ahead_begin_ += filled_;
  copied_ += filled_;
}

std::array<std::span<std::byte>, 2> FrameReader::space() {
  // A part of a frame that will be lent lies at the start already; else less than a header is left in the read-ahead,
  // and nothing while a frame is in progress.
  std::memmove(ahead_.get(), ahead_.get() + ahead_begin_, ahead_bytes());
  ahead_end_ = ahead_bytes();
  ahead_begin_ = 0;
  return {frame_.subspan(filled_), std::span(ahead_.get(), kReadAhead).subspan(ahead_end_)};
}

void FrameReader::filled(std::size_t bytes) {
  const std::size_t direct = std::min(bytes, frame_.size() - filled_);
  filled_ += direct;
  ahead_end_ += bytes - direct;
}

void FrameReader::release(std::span<const std::byte> frame) {
  pool_.release(frame);
  window_full_ = false;
}

}  // namespace terrace::transport
