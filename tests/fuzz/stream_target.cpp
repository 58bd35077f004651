// A stream of bytes cut into frames: what a connection over TCP does before any frame is decoded. The first byte says
// in which pieces the rest comes, the second when frames are released.
#include <algorithm>

#include "common/base/check.h"
#include "common/transport/tcp/frame_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/common/wire/sample_frames.h"

namespace terrace::fuzz {
namespace {

constexpr std::uint64_t kLargest = 4096;
constexpr std::uint64_t kWindow = 16384;

class Stream {
 public:
  explicit Stream(std::size_t held) : held_(held), reader_(options()) {}

  // False: the stream has no frames in it any more.
  bool take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (!drain()) return false;
      const auto space = reader_.space();
      std::size_t filled = 0;
      for (const auto piece : space) {
        const std::size_t n = std::min(piece.size(), bytes.size());
        if (n > 0) std::memcpy(piece.data(), bytes.data(), n);
        bytes = bytes.subspan(n);
        filled += n;
      }
      TERRACE_CHECK(filled > 0, "no space although the window is not full");
      reader_.filled(filled);
    }
    return drain();
  }

 private:
  static transport::Options options() {
    transport::Options options;
    options.largest_frame = kLargest;
    options.receive_window = kWindow;
    return options;
  }
  bool drain() {
    for (;;) {
      auto frame = reader_.next_frame();
      if (!frame.ok()) return false;
      if (frame->has_value()) {
        TERRACE_CHECK((*frame)->size() >= wire::kHeaderBytes && (*frame)->size() <= kLargest, "a frame out of range");
        given_.push_back(**frame);
      }
      if (!given_.empty() && (reader_.window_full() || given_.size() > held_)) {
        reader_.release(given_.front());
        given_.erase(given_.begin());
      } else if (!frame->has_value()) {
        TERRACE_CHECK(!reader_.window_full(), "the window is full although everything was released");
        return true;
      }
    }
  }

  const std::size_t held_;
  transport::FrameReader reader_;
  std::vector<std::span<const std::byte>> given_;
};

}  // namespace

void run_target(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  const std::size_t piece = static_cast<std::size_t>(input[0]) + 1;
  Stream stream(static_cast<std::size_t>(input[1]) % 8);
  for (input = input.subspan(2); !input.empty(); input = input.subspan(std::min(piece, input.size())))
    if (!stream.take(input.first(std::min(piece, input.size())))) return;
}

std::vector<Seed> make_seeds() {
  std::vector<Seed> seeds;
  for (const unsigned piece : {0u, 63u, 255u}) {
    Seed seed{"pieces-of-" + std::to_string(piece + 1), {std::byte(piece), std::byte{2}}};
    for (const auto& frame : wire::test::sample_frames())
      if (piece > 0 || frame.size() < 200)  // byte by byte: few of them, a run takes as many steps
        seed.bytes.insert(seed.bytes.end(), frame.view().begin(), frame.view().end());
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace terrace::fuzz
