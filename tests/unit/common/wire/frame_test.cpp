#include "common/wire/frame.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/common/wire/frames.h"

namespace terrace::wire {
namespace frame_test {

using test::FrameBytes;
using testing::HasSubstr;

FrameHeader slab_header() { return {.type = FrameType::kSlab, .lane = Lane::kWeights, .sequence = 1}; }

// A slab frame whose second section has `n` bytes of data, each 0xab.
FrameBytes frame_with_data(std::size_t n) {
  const std::vector<std::byte> data(n, std::byte{0xab});
  FrameBuilder builder;
  builder.begin(slab_header());
  builder.add(SectionTag::kSlabBytes, 0, data);
  return test::finish(builder);
}

std::string refusal(const FrameBytes& bytes) {
  const auto frame = decode_frame(bytes.view());
  if (frame.ok()) return "accepted";
  EXPECT_EQ(frame.error().code(), ErrorCode::kCorrupt);
  return frame.error().text();
}

template <class T>
std::string refusal_after(FrameBytes bytes, std::size_t at, T value) {
  bytes.put(at, value);
  bytes.seal();
  return refusal(bytes);
}

// The example of docs/wire.md 2, made apart from this code: Python's struct, one call of XXH3_64bits().
TEST(FrameBuilder, HeaderBytes_AreTheDocumentedOnes) {
  FrameBuilder builder;
  builder.begin({.type = FrameType::kPong,
                 .lane = Lane::kBulk,
                 .layer = 0x01020304,
                 .session = 0x1112131415161718,
                 .sequence = 0x2122232425262728,
                 .epoch = 0x3132333435363738,
                 .credit_frames = 0x41424344,
                 .credit_bytes = 0x5152535455565758});
  const FrameBytes bytes = test::finish(builder);
  const std::string expected =
      "54525243010007010000000004030201"
      "18171615141312112827262524232221"
      "38373635343332310000000044434241"
      "58575655545352514f2acc09201e49ab";
  std::string hex;
  for (const std::byte b : bytes.view()) hex += fmt::format("{:02x}", static_cast<unsigned>(b));
  EXPECT_EQ(hex, expected);
  EXPECT_EQ(builder.bytes(), kHeaderBytes);
}

TEST(FrameBuilder, EveryFieldAndSection_ComesBack) {
  const FrameHeader header{.type = FrameType::kReply,
                           .lane = Lane::kBulk,
                           .layer = 5,
                           .session = 6,
                           .sequence = 7,
                           .epoch = 8,
                           .credit_frames = 9,
                           .credit_bytes = 10};
  const std::vector<std::byte> a(17, std::byte{1}), b(3, std::byte{2}), c(32, std::byte{3});
  FrameBuilder builder;
  builder.begin(header);
  builder.add(SectionTag::kSums, 0, a, b);
  builder.add_copy(SectionTag::kReply, 0, b, c);
  builder.add(SectionTag::kFailedRows, 0, {});
  const FrameBytes bytes = test::finish(builder);
  EXPECT_EQ(bytes.size(), builder.bytes());

  const auto frame = decode_frame(bytes.view());
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  EXPECT_EQ(frame->header.type, FrameType::kReply);
  EXPECT_EQ(frame->header.lane, Lane::kBulk);
  EXPECT_EQ(frame->header.layer, 5u);
  EXPECT_EQ(frame->header.session, 6u);
  EXPECT_EQ(frame->header.sequence, 7u);
  EXPECT_EQ(frame->header.epoch, 8u);
  EXPECT_EQ(frame->header.credit_frames, 9u);
  EXPECT_EQ(frame->header.credit_bytes, 10u);
  ASSERT_EQ(frame->all().size(), 3u);
  std::vector<std::byte> sums(a);
  sums.insert(sums.end(), b.begin(), b.end());
  EXPECT_THAT(frame->find(SectionTag::kSums)->data, testing::ElementsAreArray(sums));
  EXPECT_EQ(frame->find(SectionTag::kReply)->data.size(), 35u);
  EXPECT_TRUE(frame->find(SectionTag::kFailedRows)->data.empty());
  EXPECT_EQ(frame->find(SectionTag::kSlots), nullptr);
  for (const Section& section : frame->all())
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(section.data.data()) % kAlignment, 0u);
}

TEST(FrameBuilder, BeginAgain_LeavesNothingOfTheLastFrame) {
  const std::vector<std::byte> data(5);
  FrameBuilder builder;
  builder.begin(slab_header());
  builder.add(SectionTag::kSlabBytes, 0, data);
  (void)builder.finish();
  builder.begin({.type = FrameType::kPing});
  const auto frame = decode_frame(test::finish(builder).view());
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  EXPECT_EQ(frame->header.section_count, 0u);
}

TEST(DecodeFrame, EveryDataLength_PadsToSixteen) {
  for (std::size_t n = 0; n <= 100; ++n) {
    const FrameBytes bytes = frame_with_data(n);
    EXPECT_EQ(bytes.size(), 64 + 16 + (n + 15) / 16 * 16);
    const auto frame = decode_frame(bytes.view());
    ASSERT_TRUE(frame.ok()) << frame.error().text();
    EXPECT_EQ(frame->find(SectionTag::kSlabBytes)->data.size(), n);
  }
}

TEST(FrameLength, IsReadFromTheHeaderAlone) {
  const FrameBytes bytes = frame_with_data(100);
  const auto length = frame_length(bytes.view().first(kHeaderBytes), 1000);
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length, bytes.size());
  EXPECT_TRUE(frame_length(bytes.view().first(kHeaderBytes), bytes.size()).ok());
  const auto over = frame_length(bytes.view().first(kHeaderBytes), bytes.size() - 1);
  ASSERT_FALSE(over.ok());
  EXPECT_THAT(over.error().text(), HasSubstr("frame of 192 bytes, at most 191"));
  EXPECT_FALSE(frame_length(bytes.view().first(kHeaderBytes - 1), 1000).ok());
}

TEST(FrameLength, LongerThanAnySessionMayAnnounce_IsRefused) {
  FrameBytes bytes = frame_with_data(0);
  bytes.put<std::uint32_t>(40, 0xfffffff0u);
  EXPECT_FALSE(frame_length(bytes.view(), ~std::uint64_t{0}).ok());
}

TEST(DecodeFrame, HeaderFields_AreRefusedByName) {
  const FrameBytes good = frame_with_data(16);
  const auto copy = [&] { return FrameBytes(good.view()); };
  EXPECT_THAT(refusal_after<std::uint32_t>(copy(), 0, 0x43525255), HasSubstr("magic 0x43525255"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 4, 2), HasSubstr("version 2, this build reads 1"));
  EXPECT_THAT(refusal_after<std::uint8_t>(copy(), 6, 0), HasSubstr("type 0 is not known"));
  EXPECT_THAT(refusal_after<std::uint8_t>(copy(), 6, 17), HasSubstr("type 17 is not known"));
  EXPECT_THAT(refusal_after<std::uint8_t>(copy(), 7, 3), HasSubstr("lane 3 is not known"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 8, 0x8000), HasSubstr("flags 0x8000"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 10, 17), HasSubstr("17 sections, at most 16"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 10, 2), HasSubstr("0 bytes are left"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 10, 0), HasSubstr("32 bytes after its last section"));
  EXPECT_THAT(refusal_after<std::uint32_t>(copy(), 40, 33), HasSubstr("not a multiple of 16"));
  EXPECT_THAT(refusal_after<std::uint32_t>(copy(), 40, 48), HasSubstr("its header says 112"));
  FrameBytes wrong_sum = copy();
  wrong_sum.put<std::uint64_t>(56, 1);
  EXPECT_THAT(refusal(wrong_sum), HasSubstr("checksum is 0x0000000000000001"));
}

TEST(DecodeFrame, FrameWithoutChecksum_SaysSoAndHasZerosThere) {
  FrameBuilder builder;
  builder.begin({.type = FrameType::kPing, .flags = kFlagNoChecksum, .sequence = 9});
  FrameBytes bytes = test::finish(builder);
  const auto frame = decode_frame(bytes.view());
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  EXPECT_EQ(frame->header.flags, kFlagNoChecksum);
  bytes.put<std::uint64_t>(24, 10);  // nothing here guards it: the seal does
  EXPECT_EQ(decode_frame(bytes.view())->header.sequence, 10u);
  bytes.put<std::uint64_t>(56, 1);
  EXPECT_THAT(refusal(bytes), HasSubstr("checksum is 0x0000000000000001 where its flags say that there is none"));
}

TEST(DecodeFrame, Sections_AreRefusedByName) {
  const FrameBytes good = frame_with_data(10);
  const auto copy = [&] { return FrameBytes(good.view()); };
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 64, 0), HasSubstr("offset 64: tag 0 is not known"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 64, 19), HasSubstr("tag 19 is not known"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 64, 4), HasSubstr("rows at offset 64 does not belong in a slab"));
  EXPECT_THAT(refusal_after<std::uint16_t>(copy(), 66, 1), HasSubstr("detail 1 is not known"));
  EXPECT_THAT(refusal_after<std::uint32_t>(copy(), 68, 1), HasSubstr("reserved bytes are not zero"));
  EXPECT_THAT(refusal_after<std::uint64_t>(copy(), 72, 17), HasSubstr("17 bytes, 16 are left"));
  EXPECT_THAT(refusal_after<std::uint64_t>(copy(), 72, ~std::uint64_t{0}), HasSubstr("16 are left"));
  EXPECT_THAT(refusal_after<std::uint64_t>(copy(), 72, 9), HasSubstr("padding is not zero"));
  EXPECT_THAT(refusal_after<std::uint8_t>(copy(), 95, 1), HasSubstr("padding is not zero"));
  EXPECT_EQ(refusal_after<std::uint64_t>(copy(), 72, 11), "accepted");
}

TEST(DecodeFrame, SectionTwice_IsRefused) {
  FrameBuilder builder;
  builder.begin(slab_header());
  builder.add(SectionTag::kSlabBytes, 0, {});
  builder.add(SectionTag::kSlabBytes, 0, {});
  EXPECT_THAT(refusal(test::finish(builder)), HasSubstr("slab_bytes (detail 0) at offset 80 stands twice"));
}

TEST(DecodeFrame, SectionInAFrameWithoutSections_IsRefused) {
  for (const auto type :
       {FrameType::kPing, FrameType::kPong, FrameType::kCredit, FrameType::kCancel, FrameType::kClose}) {
    FrameBuilder builder;
    builder.begin({.type = type});
    builder.add(SectionTag::kBusy, 0, {});
    EXPECT_THAT(refusal(test::finish(builder)), HasSubstr("does not belong"));
  }
}

TEST(FrameNames, AreKnownForEveryNumber) {
  for (unsigned type = 1; type <= 12; ++type) EXPECT_STRNE(name(static_cast<FrameType>(type)), "unknown");
  for (unsigned tag = 1; tag <= 14; ++tag) EXPECT_STRNE(name(static_cast<SectionTag>(tag)), "unknown");
  for (unsigned lane = 0; lane < kLanes; ++lane) EXPECT_STRNE(name(static_cast<Lane>(lane)), "unknown");
  EXPECT_STREQ(name(static_cast<FrameType>(99)), "unknown");
}

}  // namespace frame_test
}  // namespace terrace::wire
