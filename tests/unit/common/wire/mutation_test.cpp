// Foreign bytes: each sample frame cut at every length and spoilt at every byte, and bytes at random. The address
// sanitizer watches that nothing outside the frame is read; what is accepted must keep its promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "common/wire/pack.h"
#include "tests/unit/common/wire/frames.h"

namespace terrace::wire {
namespace {

using test::FrameBytes;
using test::kLimits;

template <class Add>
FrameBytes frame_of(FrameType type, Add add) {
  FrameBuilder builder;
  builder.begin({.type = type, .lane = Lane::kWeights, .layer = 1, .session = 2, .sequence = 3, .epoch = 4});
  add(builder);
  return test::finish(builder);
}

FrameBytes sample_reply(ReplyForm form) {
  const ReplyInfo info{.range_index = 1, .n_rows = 2, .n_pairs = 3, .compute_us = 5};
  std::vector<std::byte> data(form == ReplyForm::kSum ? 2 * widest_packed_bytes(kLimits.d_model)
                                                      : 3 * kLimits.d_model * sizeof(float));
  if (form == ReplyForm::kSum) {
    const std::vector<std::int64_t> y(kLimits.d_model, 300);
    const std::size_t first = pack_row(y, data.data());
    data.resize(first + pack_row(y, data.data() + first));
  }
  const std::vector<std::uint16_t> failed{1, 3};
  return frame_of(FrameType::kReply, [&](FrameBuilder& b) { add_reply(b, info, form, data, failed); });
}

std::vector<FrameBytes> sample_frames() {
  std::vector<FrameBytes> frames;
  const std::vector<std::byte> data(21, std::byte{0x5a});
  frames.push_back(test::SampleBatch().bytes());
  frames.push_back(sample_reply(ReplyForm::kSum));
  frames.push_back(sample_reply(ReplyForm::kSlots));
  frames.push_back(frame_of(FrameType::kHello, [](auto& b) { add_hello(b, {.largest_frame = 4096}); }));
  frames.push_back(frame_of(FrameType::kWelcome, [](auto& b) { add_welcome(b, {4096, 4096, 1, 0}); }));
  frames.push_back(frame_of(FrameType::kBusy, [](auto& b) { add_busy(b, {.expected_us = 1}); }));
  frames.push_back(frame_of(FrameType::kError, [](auto& b) { add_error(b, ErrorCode::kBusy, "no"); }));
  frames.push_back(frame_of(FrameType::kSlab, [&](auto& b) { add_slab_piece(b, {0, 1, 2, 100}, data); }));
  for (const auto type :
       {FrameType::kPing, FrameType::kPong, FrameType::kCredit, FrameType::kCancel, FrameType::kClose})
    frames.push_back(frame_of(type, [](auto&) {}));
  return frames;
}

void check_batch(const BatchView& batch) {
  ASSERT_LE(batch.info.n_rows, kLimits.max_rows);
  ASSERT_EQ(batch.pairs.size(), batch.info.n_pairs);
  for (const Pair& pair : batch.pairs) {
    ASSERT_LT(pair.row, batch.info.n_rows);
    ASSERT_LT(pair.expert, kLimits.n_experts);
    ASSERT_TRUE(std::isfinite(pair.weight));
    ASSERT_TRUE(std::any_of(batch.ranges.begin(), batch.ranges.end(), [&](const RowRange& range) {
      return pair.row >= range.first && pair.row < range.first + range.count;
    }));
  }
  for (const RowRange& range : batch.ranges) ASSERT_LE(range.first + range.count, batch.info.n_rows);
  ASSERT_EQ(batch.gate_rows.size(), batch.info.n_rows * row_bytes(batch.info.gate_class, kLimits.d_model));
  ASSERT_EQ(batch.up_rows.size(), batch.info.n_rows * row_bytes(batch.info.up_class, kLimits.d_model));
}

void check_reply(const ReplyView& reply) {
  ASSERT_LT(reply.info.range_index, kLimits.max_ranges);
  ASSERT_LE(reply.info.n_rows, kLimits.max_rows);
  for (const std::uint16_t row : reply.failed_rows) ASSERT_LT(row, kLimits.max_rows);
  if (reply.form == ReplyForm::kSlots) {
    ASSERT_EQ(reply.slots.size(), std::size_t{reply.info.n_pairs} * kLimits.d_model);
    return;
  }
  auto sums = reply.sums;
  std::vector<std::int64_t> row(kLimits.d_model);
  for (std::uint32_t i = 0; i < reply.info.n_rows; ++i) {
    const auto used = unpack_add_row(sums, row);
    if (!used.ok()) return;  // a width that is not the least
    sums = sums.subspan(*used);
  }
  ASSERT_TRUE(sums.empty());
}

// Reads the frame by whatever it says it is, and holds the result against what readers promise. True: it was accepted.
bool read_any(const FrameBytes& bytes) {
  const auto frame = decode_frame(bytes.view());
  if (!frame.ok()) {
    EXPECT_EQ(frame.error().code(), ErrorCode::kCorrupt);
    EXPECT_FALSE(frame.error().text().empty());
    return false;
  }
  switch (frame->header.type) {
    case FrameType::kBatch: {
      const auto batch = read_batch(*frame, kLimits);
      if (batch.ok()) check_batch(*batch);
      return batch.ok();
    }
    case FrameType::kReply: {
      const auto reply = read_reply(*frame, kLimits);
      if (reply.ok()) check_reply(*reply);
      return reply.ok();
    }
    case FrameType::kHello:
      return read_hello(*frame).ok();
    case FrameType::kWelcome:
      return read_welcome(*frame).ok();
    case FrameType::kBusy:
      return read_busy(*frame).ok();
    case FrameType::kError:
      return read_error(*frame).ok();
    case FrameType::kSlab:
      return read_slab_piece(*frame).ok();
    default:
      return true;
  }
}

TEST(ForeignBytes, SamplesAsTheyAre_AreAccepted) {
  for (const FrameBytes& frame : sample_frames()) EXPECT_TRUE(read_any(frame));
}

TEST(ForeignBytes, EveryTruncation_IsRefused) {
  for (const FrameBytes& frame : sample_frames())
    for (std::size_t n = 0; n < frame.size(); ++n)
      ASSERT_FALSE(decode_frame(FrameBytes(frame.view().first(n)).view()).ok()) << n << " of " << frame.size();
}

// As a peer would do it on purpose: the length in the header says what is there.
TEST(ForeignBytes, EveryTruncationWithLengthAndChecksumMadeRight_IsRefused) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t n = kHeaderBytes; n < frame.size(); n += kAlignment) {
      FrameBytes cut(frame.view().first(n));
      cut.put<std::uint32_t>(40, static_cast<std::uint32_t>(n - kHeaderBytes));
      cut.seal();
      ASSERT_FALSE(read_any(cut)) << n << " of " << frame.size();
    }
  }
}

TEST(ForeignBytes, EveryFlippedBit_IsRefusedByTheChecksum) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        FrameBytes spoilt(frame.view());
        spoilt.data()[at] ^= std::byte(1u << bit);
        ASSERT_FALSE(decode_frame(spoilt.view()).ok()) << "bit " << bit << " of byte " << at;
      }
    }
  }
}

TEST(ForeignBytes, EverySpoiltByteUnderARightChecksum_IsRefusedOrInRange) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (const unsigned mask : {0x01u, 0x02u, 0x04u, 0x08u, 0x10u, 0x20u, 0x40u, 0x80u, 0xffu}) {
        FrameBytes spoilt(frame.view());
        spoilt.data()[at] ^= std::byte(mask);
        spoilt.seal();
        read_any(spoilt);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "byte " << at << " mask " << mask;
      }
    }
  }
}

TEST(ForeignBytes, ManySpoiltWordsUnderARightChecksum_AreRefusedOrInRange) {
  std::mt19937_64 random(4715);
  const auto frames = sample_frames();
  for (int run = 0; run < 20000; ++run) {
    FrameBytes spoilt(frames[random() % frames.size()].view());
    for (std::uint64_t n = random() % 4 + 1; n > 0; --n) {
      const std::uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, static_cast<std::uint32_t>(random())};
      spoilt.put<std::uint32_t>(random() % (spoilt.size() / 4) * 4, extremes[random() % std::size(extremes)]);
    }
    spoilt.put<std::uint32_t>(0, kMagic);
    spoilt.put<std::uint32_t>(40, static_cast<std::uint32_t>(spoilt.size() - kHeaderBytes));
    spoilt.seal();
    read_any(spoilt);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed 4715, run " << run;
  }
}

TEST(ForeignBytes, RandomBytes_AreRefused) {
  std::mt19937_64 random(4716);
  for (int run = 0; run < 20000; ++run) {
    FrameBytes bytes(random() % 300);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes.data()[i] = std::byte(random());
    ASSERT_FALSE(decode_frame(bytes.view()).ok()) << "seed 4716, run " << run;
  }
}

}  // namespace
}  // namespace terrace::wire
