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
      ahead_(std::make_unique_for_overwrite<std::byte[]>(kReadAhead)) {}

Result<std::optional<std::span<const std::byte>>> FrameReader::next_frame() {
  using Frame = std::optional<std::span<const std::byte>>;
  if (frame_.empty()) {
    if (ahead_bytes() < wire::kHeaderBytes) return Frame();
    const std::span<const std::byte> header(ahead_.get() + ahead_begin_, wire::kHeaderBytes);
    TERRACE_ASSIGN_OR_RETURN(const std::uint64_t bytes, wire::frame_length(header, largest_frame_));
    if (!start_frame(bytes)) return Frame();
  }
  if (filled_ < frame_.size()) return Frame();
  filled_ = 0;
  return Frame(std::exchange(frame_, {}));
}

bool FrameReader::start_frame(std::uint64_t bytes) {
  window_full_ = !pool_.has_room(bytes);
  if (window_full_) return false;
  frame_ = pool_.acquire(bytes);
  filled_ = std::min(frame_.size(), ahead_bytes());
  std::memcpy(frame_.data(), ahead_.get() + ahead_begin_, filled_);
  ahead_begin_ += filled_;
  return true;
}

std::array<std::span<std::byte>, 2> FrameReader::space() {
  // Less than a header is left in the read-ahead, nothing while a frame is in progress.
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
