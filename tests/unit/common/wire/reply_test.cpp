#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/wire/pack.h"
#include "tests/unit/common/wire/frames.h"

namespace terrace::wire {
namespace reply_test {

using test::FrameBytes;
using test::kLimits;
using testing::HasSubstr;

constexpr std::size_t kWidth = kLimits.d_model;

std::vector<std::byte> packed_rows(std::size_t rows, unsigned width_bytes) {
  std::mt19937_64 random(4714);
  std::vector<std::byte> out(rows * widest_packed_bytes(kWidth));
  std::vector<std::int64_t> y(kWidth);
  std::size_t used = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (auto& v : y) v = static_cast<std::int64_t>(random()) >> (64 - 8 * width_bytes);
    used += pack_row(y, out.data() + used);
  }
  out.resize(used);
  return out;
}

struct SampleReply {
  FrameHeader header{.type = FrameType::kReply, .layer = 2, .session = 1, .sequence = 9, .epoch = 4};
  ReplyInfo info{.range_index = 1, .n_rows = 3, .n_pairs = 5, .compute_us = 77};
  ReplyForm form = ReplyForm::kSum;
  std::vector<std::byte> data = packed_rows(3, 3);
  std::vector<std::uint16_t> failed_rows;

  FrameBytes bytes() const {
    FrameBuilder builder;
    builder.begin(header);
    add_reply(builder, info, form, data, failed_rows);
    return test::finish(builder);
  }
};

template <class Spoil>
std::string refusal(Spoil spoil) {
  SampleReply sample;
  spoil(sample);
  const FrameBytes bytes = sample.bytes();
  const auto frame = decode_frame(bytes.view());
  if (!frame.ok()) return frame.error().text();
  const auto reply = read_reply(*frame, kLimits);
  return reply.ok() ? "accepted" : reply.error().text();
}

TEST(Reply, Sums_RoundTrip) {
  SampleReply sample;
  sample.failed_rows = {0, 5};
  const FrameBytes bytes = sample.bytes();
  const auto frame = decode_frame(bytes.view());
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  const auto reply = read_reply(*frame, kLimits);
  ASSERT_TRUE(reply.ok()) << reply.error().text();
  EXPECT_EQ(reply->sequence, 9u);
  EXPECT_EQ(reply->epoch, 4u);
  EXPECT_EQ(reply->layer, 2u);
  EXPECT_EQ(reply->info.range_index, 1u);
  EXPECT_EQ(reply->info.n_rows, 3u);
  EXPECT_EQ(reply->info.n_pairs, 5u);
  EXPECT_EQ(reply->info.compute_us, 77u);
  EXPECT_EQ(reply->form, ReplyForm::kSum);
  EXPECT_THAT(reply->sums, testing::ElementsAreArray(sample.data));
  EXPECT_THAT(reply->failed_rows, testing::ElementsAre(0, 5));
}

TEST(Reply, Slots_RoundTrip) {
  SampleReply sample;
  sample.form = ReplyForm::kSlots;
  std::vector<float> values(5 * kWidth, 1.5f);
  sample.data.assign(std::as_bytes(std::span(values)).begin(), std::as_bytes(std::span(values)).end());
  const FrameBytes bytes = sample.bytes();
  const auto frame = decode_frame(bytes.view());
  const auto reply = read_reply(*frame, kLimits);
  ASSERT_TRUE(reply.ok()) << reply.error().text();
  EXPECT_EQ(reply->form, ReplyForm::kSlots);
  EXPECT_THAT(reply->slots, testing::ElementsAreArray(values));
  EXPECT_TRUE(reply->sums.empty());
}

TEST(Reply, FrameBytes_AreAtMostTheWidest) {
  for (unsigned width = 1; width <= 8; ++width) {
    for (const bool failed : {false, true}) {
      SampleReply sample;
      sample.data = packed_rows(3, width);
      if (failed) sample.failed_rows = {0, 1, 2};
      const std::uint64_t widest = widest_reply_frame_bytes(ReplyForm::kSum, 3, 5, kWidth);
      EXPECT_LE(sample.bytes().size(), widest);
      if (width == 8 && failed) {
        EXPECT_EQ(sample.bytes().size(), widest);
      }
    }
  }
  SampleReply slots;
  slots.form = ReplyForm::kSlots;
  slots.data.resize(5 * kWidth * 4);
  slots.failed_rows = {0, 1, 2};
  EXPECT_EQ(slots.bytes().size(), widest_reply_frame_bytes(ReplyForm::kSlots, 3, 5, kWidth));
}

TEST(Reply, WhatDoesNotFit_IsRefusedByName) {
  EXPECT_EQ(refusal([](SampleReply&) {}), "accepted");
  EXPECT_THAT(refusal([](auto& s) { s.header.layer = 5; }), HasSubstr("layer 5"));
  EXPECT_THAT(refusal([](auto& s) { s.info.range_index = 4; }), HasSubstr("range 4, this session allows 4"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 9, s.info.n_pairs = 9; }),
              HasSubstr("9 rows, this session allows 8"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_pairs = 17; }), HasSubstr("17 pairs, this session allows 16"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_pairs = 2; }), HasSubstr("3 rows do not go with 2 pairs"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 0; }), HasSubstr("0 rows do not go with 5 pairs"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 4; }), HasSubstr("row 3 of 4"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 2; }), HasSubstr("their 2 rows end at"));
  EXPECT_THAT(refusal([](auto& s) { s.data.pop_back(); }), HasSubstr("row 2 of 3"));
  EXPECT_THAT(refusal([](auto& s) { s.data[0] = std::byte{9}; }), HasSubstr("has width 9"));
  EXPECT_THAT(refusal([](auto& s) { s.form = ReplyForm::kSlots; }), HasSubstr("section slots (detail 0) has"));
  EXPECT_THAT(refusal([](auto& s) { s.failed_rows = {8}; }), HasSubstr("failed row 8"));
  EXPECT_THAT(refusal([](auto& s) { s.failed_rows = {2, 1}; }), HasSubstr("failed row 1 (entry 1)"));
  EXPECT_THAT(refusal([](auto& s) { s.failed_rows = {1, 1}; }), HasSubstr("does not rise"));
  EXPECT_THAT(refusal([](auto& s) { s.failed_rows = {0, 1, 2, 3}; }), HasSubstr("failed_rows has 8 bytes"));
}

TEST(Reply, RangeWithoutPairs_HasNoRows) {
  const auto spoil = [](SampleReply& s) {
    s.info.n_rows = s.info.n_pairs = 0;
    s.data.clear();
  };
  EXPECT_EQ(refusal(spoil), "accepted");
}

TEST(Reply, NeitherOrBothForms_AreRefused) {
  const SampleReply s;
  for (const bool both : {false, true}) {
    FrameBuilder builder;
    builder.begin(s.header);
    builder.add_copy(SectionTag::kReply, 0, std::as_bytes(std::span(&s.info, 1)));
    if (both) builder.add(SectionTag::kSums, 0, s.data);
    if (both) builder.add(SectionTag::kSlots, 0, {});
    const FrameBytes bytes = test::finish(builder);
    const auto reply = read_reply(*decode_frame(bytes.view()), kLimits);
    ASSERT_FALSE(reply.ok());
    EXPECT_THAT(reply.error().text(), HasSubstr(both ? "both of sums and slots" : "neither of sums and slots"));
  }
}

TEST(Reply, FailedRowsOfOddLengthOrNone_AreRefused) {
  const SampleReply s;
  for (const std::size_t length : {0u, 1u, 3u}) {
    const std::vector<std::byte> rows(length);
    FrameBuilder builder;
    builder.begin(s.header);
    add_reply(builder, s.info, s.form, s.data, {});
    builder.add(SectionTag::kFailedRows, 0, rows);
    const FrameBytes bytes = test::finish(builder);
    EXPECT_FALSE(read_reply(*decode_frame(bytes.view()), kLimits).ok()) << length;
  }
}

}  // namespace reply_test
}  // namespace terrace::wire
