// Bytes as they come from a peer: the header's length, then the whole frame by whatever it says it is. Then the same
// with magic, version, length and checksum made right, as a hostile peer would.
#include <xxhash.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/common/wire/foreign_frame.h"
#include "tests/unit/common/wire/sample_frames.h"

namespace terrace::fuzz {

using wire::test::FrameBytes;
using wire::test::kLimits;

void run_target(std::span<const std::byte> input) {
  constexpr std::uint64_t kLargest = 1 << 16;
  if (input.size() >= wire::kHeaderBytes) {
    const auto length = wire::frame_length(input.first(wire::kHeaderBytes), kLargest);
    if (length.ok()) TERRACE_CHECK(*length >= wire::kHeaderBytes && *length <= kLargest, "a length out of range");
  }
  (void)wire::test::read_foreign_frame(input, kLimits);
  if (input.size() < wire::kHeaderBytes) return;
  FrameBytes frame(input.first(input.size() / wire::kAlignment * wire::kAlignment));
  frame.put<std::uint32_t>(0, wire::kMagic);
  frame.put<std::uint16_t>(4, wire::kVersion);
  frame.put<std::uint32_t>(40, static_cast<std::uint32_t>(frame.size() - wire::kHeaderBytes));
  frame.seal();
  (void)wire::test::read_foreign_frame(frame.view(), kLimits);
}

std::vector<Seed> make_seeds() {
  std::vector<Seed> seeds;
  for (const FrameBytes& frame : wire::test::sample_frames())
    seeds.push_back({"sample-" + std::to_string(seeds.size()), to_bytes(frame.view())});
  return seeds;
}

}  // namespace terrace::fuzz
