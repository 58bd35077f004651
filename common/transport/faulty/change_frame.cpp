#include "common/transport/faulty/change_frame.h"

#include <algorithm>
#include <cstring>

#include "common/wire/frame.h"

namespace terrace::transport {
namespace {

AlignedBuffer gather(std::span<const Part> parts, std::uint64_t most) {
  std::uint64_t bytes = 0;
  for (const Part part : parts) bytes += part.size();
  auto buffer = AlignedBuffer::allocate(static_cast<std::size_t>(std::min(bytes, most)));
  std::span<std::byte> to = buffer.value().bytes();
  for (const Part part : parts) {
    const std::size_t n = std::min(part.size(), to.size());
    if (n == 0) continue;
    std::memcpy(to.data(), part.data(), n);
    to = to.subspan(n);
  }
  return std::move(buffer).value();
}

// The same frame under another header and checksum.
AlignedBuffer without_credit(AlignedBuffer bytes) {
  const auto frame = wire::decode_frame(bytes.bytes());
  if (!frame.ok()) return bytes;
  wire::FrameHeader header = frame->header;
  if (header.credit_frames == 0 && header.credit_bytes == 0) return bytes;
  header.credit_frames = 0;
  header.credit_bytes = 0;
  wire::FrameBuilder builder;
  builder.begin(header);
  for (const wire::Section& section : frame->all()) builder.add(section.tag, section.detail, section.data);
  return gather(builder.finish(), bytes.size());
}

}  // namespace

AlignedBuffer changed_frame(std::span<const Part> parts, const Verdict& verdict) {
  AlignedBuffer frame = gather(parts, ~std::uint64_t{0});
  if (verdict.starve) frame = without_credit(std::move(frame));
  if (verdict.flip_bit && frame.size() > 0) {
    const std::uint64_t bit = *verdict.flip_bit % (8 * frame.size());
    frame.bytes()[bit / 8] ^= std::byte(1u << bit % 8);
  }
  const std::uint64_t left = frame.size() - std::min<std::uint64_t>(verdict.truncate, frame.size());
  const std::uint64_t leaves = std::min(left, verdict.cut_after.value_or(left));
  if (leaves == frame.size()) return frame;
  const Part all = frame.bytes();
  return gather({&all, 1}, leaves);
}

}  // namespace terrace::transport
