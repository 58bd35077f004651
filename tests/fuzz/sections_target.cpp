// Contents of sections in a frame that is well formed: what the readers of batch and reply do with fields that lie. The
// input is the frame's type (odd: a reply), its layer, then up to 8 sections, each a tag, a length and so many bytes.
#include <algorithm>
#include <array>

#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/common/wire/foreign_frame.h"
#include "tests/unit/common/wire/sample_frames.h"

namespace terrace::fuzz {
namespace {

using wire::SectionTag;
using wire::test::kLimits;

constexpr std::size_t kMostSections = 8;
constexpr std::array kBatchTags = {SectionTag::kBatch, SectionTag::kRows, SectionTag::kPairs, SectionTag::kRanges};
constexpr std::array kReplyTags = {SectionTag::kReply, SectionTag::kSums, SectionTag::kSlots, SectionTag::kFailedRows};

Seed seed_of(const std::string& name, const wire::test::FrameBytes& bytes) {
  const auto frame = wire::decode_frame(bytes.view()).value();
  const bool reply = frame.header.type == wire::FrameType::kReply;
  Seed seed{name, {std::byte(reply), std::byte(frame.header.layer)}};
  for (const wire::Section& section : frame.all()) {
    const auto& tags = reply ? kReplyTags : kBatchTags;
    const auto tag = static_cast<unsigned>(std::ranges::find(tags, section.tag) - tags.begin());
    seed.bytes.push_back(std::byte(tag | section.detail << 2));
    seed.bytes.push_back(std::byte(section.data.size()));
    seed.bytes.push_back(std::byte(section.data.size() >> 8));
    seed.bytes.insert(seed.bytes.end(), section.data.begin(), section.data.end());
  }
  return seed;
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  const bool reply = (input[0] & std::byte{1}) != std::byte{0};
  wire::FrameBuilder builder;
  builder.begin({.type = reply ? wire::FrameType::kReply : wire::FrameType::kBatch,
                 .layer = static_cast<std::uint32_t>(input[1]),
                 .session = 1,
                 .sequence = 1,
                 .epoch = 1});
  input = input.subspan(2);
  for (std::size_t n = 0; n < kMostSections && input.size() >= 3; ++n) {
    const auto which = static_cast<unsigned>(input[0]);
    const std::size_t stated = static_cast<std::size_t>(input[1]) | static_cast<std::size_t>(input[2]) << 8;
    input = input.subspan(3);
    const auto data = input.first(std::min(stated, input.size()));
    builder.add((reply ? kReplyTags : kBatchTags)[which % 4], static_cast<std::uint16_t>(which >> 2 & 1), data);
    input = input.subspan(data.size());
  }
  const wire::test::FrameBytes frame = wire::test::finish(builder);
  (void)wire::test::read_foreign_frame(frame.view(), kLimits);
}

std::vector<Seed> make_seeds() {
  return {seed_of("batch", wire::test::SampleBatch().bytes()),
          seed_of("reply-sums", wire::test::sample_reply(wire::ReplyForm::kSum)),
          seed_of("reply-slots", wire::test::sample_reply(wire::ReplyForm::kSlots))};
}

}  // namespace terrace::fuzz
