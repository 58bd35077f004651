// Decoding sets nothing aside on a peer's word: whatever a frame announces, only the text of the error is allocated,
// and a lawful frame allocates nothing at all.
#include <gtest/gtest.h>

#include "common/transport/tcp/frame_reader.h"
#include "tests/unit/common/wire/foreign_frame.h"
#include "tests/unit/common/wire/sample_frames.h"
#include "tests/unit/count_allocations.h"

namespace terrace::wire {
namespace {

using test::FrameBytes;
using test::kLimits;

constexpr std::size_t kErrorBytes = 4096;  // sentences of a few hundred bytes, grown a few times

// Bytes allocated by `what`.
template <class Function>
std::size_t allocated_by(Function what) {
  const std::size_t before = terrace::test::allocated_bytes_of_this_thread();
  what();
  return terrace::test::allocated_bytes_of_this_thread() - before;
}

// Every 32-bit word of every sample announces the most that it can, alone and with the word behind it.
TEST(WireAllocations, HugeNumberInEveryField_OnlyTheErrorIsAllocated) {
  for (const FrameBytes& sample : test::sample_frames()) {
    for (std::size_t at = 0; at + 8 <= sample.size(); at += 4) {
      for (const std::uint64_t huge : {~std::uint64_t{0}, std::uint64_t{0x7fffffff}, std::uint64_t{0xfffffff0},
                                       std::uint64_t{1} << 62, std::uint64_t{0x40000000}}) {
        FrameBytes frame(sample.view());
        frame.put(at, huge);
        if (at < 40 || at >= 48) frame.put<std::uint32_t>(0, kMagic);
        frame.seal();
        const std::size_t header = allocated_by([&] { (void)frame_length(frame.view().first(64), 1 << 20); });
        EXPECT_LE(header, kErrorBytes) << "offset " << at;
        if (frame.get<std::uint8_t>(6) == static_cast<std::uint8_t>(FrameType::kReply)) continue;  // unpacks a row
        const std::size_t body = allocated_by([&] { (void)test::read_foreign_frame(frame.view(), kLimits); });
        EXPECT_LE(body, kErrorBytes) << "offset " << at;
      }
    }
  }
}

TEST(WireAllocations, LawfulFrames_NothingIsAllocated) {
  const test::SampleBatch batch;
  const FrameBytes bytes = batch.bytes();
  const FrameBytes reply = test::sample_reply(ReplyForm::kSum);
  const FrameBytes slots = test::sample_reply(ReplyForm::kSlots);
  EXPECT_EQ(allocated_by([&] { EXPECT_TRUE(test::read_foreign_frame(bytes.view(), kLimits)); }), 0u);
  for (const FrameBytes* frame : {&reply, &slots}) {
    const auto decoded = decode_frame(frame->view());
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(allocated_by([&] {
                (void)decode_frame(frame->view());
                (void)read_reply(*decoded, kLimits);
              }),
              0u);
  }
}

// A connection sets a frame's memory aside when its header is there: at most what was announced to the peer.
TEST(WireAllocations, HeaderOfAFrameBeyondTheLimit_NothingIsSetAsideByTheConnection) {
  transport::Options options;
  options.largest_frame = 1 << 16;
  options.receive_window = 1 << 20;
  for (const std::uint32_t body : {0x10000u, 0x00fffff0u, 0x3fffffc0u, 0x7ffffff0u, 0xfffffff0u}) {
    transport::FrameReader reader(options);
    FrameBytes header(test::frame_of(FrameType::kPing, [](FrameBuilder&) {}).view());
    header.put(40, body);
    const std::size_t bytes = allocated_by([&] {
      std::ranges::copy(header.view(), reader.space()[1].begin());
      reader.filled(header.size());
      EXPECT_FALSE(reader.next_frame().ok());
    });
    EXPECT_LE(bytes, kErrorBytes) << body;
  }
}

TEST(WireAllocations, HeaderOfTheLargestFrame_ThatMuchAndNoMore) {
  transport::Options options;
  options.largest_frame = 1 << 16;
  options.receive_window = 1 << 20;
  transport::FrameReader reader(options);
  FrameBytes header(test::frame_of(FrameType::kPing, [](FrameBuilder&) {}).view());
  header.put<std::uint32_t>(40, (1 << 16) - 64);
  const std::size_t bytes = allocated_by([&] {
    std::ranges::copy(header.view(), reader.space()[1].begin());
    reader.filled(header.size());
    EXPECT_TRUE(reader.next_frame().ok());
  });
  EXPECT_GE(bytes, std::size_t{1} << 16);
  EXPECT_LE(bytes, (std::size_t{1} << 16) + kErrorBytes);
}

}  // namespace
}  // namespace terrace::wire
