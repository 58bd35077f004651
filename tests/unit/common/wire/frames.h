// Frames for tests: put together in memory of exactly their size, so that a sanitizer sees each byte read beyond it.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <xxhash.h>

#include "common/wire/frame.h"
#include "common/wire/messages.h"

namespace terrace::wire::test {

class FrameBytes {
 public:
  explicit FrameBytes(std::size_t size) : bytes_(allocate(size)), size_(size) {}
  explicit FrameBytes(std::span<const std::byte> bytes) : FrameBytes(bytes.size()) {
    if (!bytes.empty()) std::memcpy(bytes_.get(), bytes.data(), bytes.size());
  }

  std::byte* data() { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::span<const std::byte> view() const { return {bytes_.get(), size_}; }
  template <class T>
  void put(std::size_t at, T value) {
    check_end(at + sizeof(T));
    std::memcpy(bytes_.get() + at, &value, sizeof(T));
  }
  template <class T>
  T get(std::size_t at) const {
    check_end(at + sizeof(T));
    T value;
    std::memcpy(&value, bytes_.get() + at, sizeof(T));
    return value;
  }
  // Makes the checksum right for whatever the bytes are now: XXH3-64 in one call, where the product streams.
  void seal() {
    put<std::uint64_t>(56, 0);
    put<std::uint64_t>(56, XXH3_64bits(bytes_.get(), size_));
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{kAlignment}); }
  };
  static std::byte* allocate(std::size_t size) {
    return static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}));
  }
  void check_end(std::size_t end) const { TERRACE_CHECK(end <= size_, "a test writes beyond its frame"); }

  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_;
};

inline FrameBytes gather(std::span<const std::span<const std::byte>> parts) {
  std::size_t size = 0;
  for (const auto part : parts) size += part.size();
  FrameBytes frame(size);
  std::size_t at = 0;
  for (const auto part : parts) {
    std::memcpy(frame.data() + at, part.data(), part.size());
    at += part.size();
  }
  return frame;
}

inline FrameBytes finish(FrameBuilder& builder) { return gather(builder.finish()); }

// A small batch and its reply in a session of these limits.
inline constexpr BatchLimits kLimits{
    .max_rows = 8, .max_pairs = 16, .max_ranges = 4, .d_model = 64, .n_experts = 6, .n_layers = 5};

struct SampleBatch {
  BatchInfo info{.n_rows = 4,
                 .n_pairs = 5,
                 .n_ranges = 2,
                 .d_model = kLimits.d_model,
                 .remaining_us = 900,
                 .form = ReplyForm::kSum,
                 .priority = Priority::kPrompt,
                 .gate_class = ActivationClass::kA8x32,
                 .up_class = ActivationClass::kF32};
  std::vector<std::byte> gate_rows = std::vector<std::byte>(4 * 2 * 36, std::byte{7});
  std::vector<std::byte> up_rows = std::vector<std::byte>(4 * 64 * 4, std::byte{9});
  std::vector<Pair> pairs{{0, 1, 0.5f}, {3, 1, -0.25f}, {1, 2, 1.0f}, {2, 5, 0.0f}, {3, 5, 2.0f}};
  std::vector<RowRange> ranges{{0, 2}, {2, 2}};
  FrameHeader header{
      .type = FrameType::kBatch, .lane = Lane::kBulk, .layer = 3, .session = 11, .sequence = 42, .epoch = 7};

  FrameBytes bytes() const {
    FrameBuilder builder;
    builder.begin(header);
    add_batch(builder, info, gate_rows, up_rows, pairs, ranges);
    return finish(builder);
  }
};

// The batch as a peer would read it: whether it may be used.
inline Result<BatchInfo> read_sample_batch(const FrameBytes& bytes, const BatchLimits& limits = kLimits) {
  TERRACE_ASSIGN_OR_RETURN(const Frame frame, decode_frame(bytes.view()));
  TERRACE_ASSIGN_OR_RETURN(const BatchView view, read_batch(frame, limits));
  return view.info;
}

}  // namespace terrace::wire::test
