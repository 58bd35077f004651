#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/unit/common/wire/frames.h"

namespace terrace::wire {
namespace batch_test {

using test::FrameBytes;
using test::kLimits;
using test::read_sample_batch;
using test::SampleBatch;
using testing::HasSubstr;

std::string refusal(const std::function<void(SampleBatch&)>& spoil, const BatchLimits& limits = kLimits) {
  SampleBatch sample;
  spoil(sample);
  const auto read = read_sample_batch(sample.bytes(), limits);
  if (read.ok()) return "accepted";
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  return read.error().text();
}

TEST(Batch, RoundTrips) {
  const SampleBatch sample;
  const FrameBytes bytes = sample.bytes();
  const auto frame = decode_frame(bytes.view());
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  const auto batch = read_batch(*frame, kLimits);
  ASSERT_TRUE(batch.ok()) << batch.error().text();
  EXPECT_EQ(batch->layer, 3u);
  EXPECT_EQ(batch->epoch, 7u);
  EXPECT_EQ(batch->sequence, 42u);
  EXPECT_EQ(batch->info.remaining_us, 900u);
  EXPECT_EQ(batch->info.form, ReplyForm::kSum);
  EXPECT_EQ(batch->info.priority, Priority::kPrompt);
  EXPECT_THAT(batch->gate_rows, testing::ElementsAreArray(sample.gate_rows));
  EXPECT_THAT(batch->up_rows, testing::ElementsAreArray(sample.up_rows));
  ASSERT_EQ(batch->pairs.size(), sample.pairs.size());
  for (std::size_t i = 0; i < sample.pairs.size(); ++i) {
    EXPECT_EQ(batch->pairs[i].row, sample.pairs[i].row);
    EXPECT_EQ(batch->pairs[i].expert, sample.pairs[i].expert);
    EXPECT_EQ(batch->pairs[i].weight, sample.pairs[i].weight);
  }
  ASSERT_EQ(batch->ranges.size(), 2u);
  EXPECT_EQ(batch->ranges[1].first, 2u);
  EXPECT_EQ(batch->ranges[1].count, 2u);
}

TEST(Batch, OneClass_SharesTheRows) {
  SampleBatch sample;
  sample.info.up_class = sample.info.gate_class;
  const FrameBytes bytes = sample.bytes();
  const auto frame = decode_frame(bytes.view());
  const auto batch = read_batch(*frame, kLimits);
  ASSERT_TRUE(batch.ok()) << batch.error().text();
  EXPECT_EQ(batch->up_rows.data(), batch->gate_rows.data());
  EXPECT_EQ(batch->up_rows.size(), batch->gate_rows.size());
}

TEST(Batch, FrameBytes_AreTheAnnouncedOnes) {
  for (const std::uint32_t n_rows : {1u, 2u, 5u}) {
    for (const bool two_classes : {false, true}) {
      SampleBatch sample;
      sample.info.n_rows = n_rows;
      if (!two_classes) sample.info.up_class = sample.info.gate_class;
      sample.gate_rows.resize(n_rows * row_bytes(sample.info.gate_class, kLimits.d_model));
      sample.up_rows.resize(n_rows * row_bytes(sample.info.up_class, kLimits.d_model));
      sample.pairs = {{0, 0, 1.0f}, {0, 3, 1.0f}, {0, 4, 1.0f}};
      sample.ranges = {{0, 1}};
      sample.info.n_pairs = 3;
      sample.info.n_ranges = 1;
      const FrameBytes bytes = sample.bytes();
      ASSERT_TRUE(read_sample_batch(bytes).ok());
      EXPECT_EQ(bytes.size(), batch_frame_bytes({.n_rows = n_rows,
                                                 .n_pairs = 3,
                                                 .n_ranges = 1,
                                                 .d_model = kLimits.d_model,
                                                 .gate_class = sample.info.gate_class,
                                                 .up_class = sample.info.up_class}));
    }
  }
}

TEST(Batch, Info_IsRefusedByName) {
  EXPECT_EQ(refusal([](SampleBatch&) {}), "accepted");
  EXPECT_THAT(refusal([](auto& s) { s.header.layer = 5; }), HasSubstr("layer 5, the model has 5"));
  EXPECT_THAT(refusal([](auto& s) { s.header.sequence = 0; }), HasSubstr("sequence 0"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 0; }), HasSubstr("0 rows, this session allows 1 to 8"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_rows = 9; }), HasSubstr("9 rows"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_pairs = 0; }), HasSubstr("0 pairs"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_pairs = 17; }), HasSubstr("17 pairs, this session allows 1 to 16"));
  EXPECT_THAT(refusal([](auto& s) { s.info.n_ranges = 5; }), HasSubstr("5 ranges, this session allows 1 to 4"));
  EXPECT_THAT(refusal([](auto& s) { s.info.d_model = 32; }), HasSubstr("rows of 32 values, the model has 64"));
  EXPECT_THAT(refusal([](auto& s) { s.info.form = static_cast<ReplyForm>(2); }), HasSubstr("reply form 2"));
  EXPECT_THAT(refusal([](auto& s) { s.info.priority = static_cast<Priority>(2); }), HasSubstr("priority 2"));
  EXPECT_THAT(refusal([](auto& s) { s.info.gate_class = static_cast<ActivationClass>(3); }), HasSubstr("gate class 3"));
  EXPECT_THAT(refusal([](auto& s) { s.info.up_class = static_cast<ActivationClass>(255); }), HasSubstr("up class 255"));
  EXPECT_THAT(refusal([](auto& s) { s.info.up_class = ActivationClass::kA8x256; }), HasSubstr("blocks of 256 values"));
  EXPECT_THAT(refusal([](auto& s) { s.info.reserved[1] = 1; }), HasSubstr("reserved"));
}

TEST(Batch, CountsThatMultiplyBeyondMemory_AreRefused) {
  const BatchLimits wide{.max_rows = 65536,
                         .max_pairs = 0xffffffff,
                         .max_ranges = 0xffffffff,
                         .d_model = 0xffffffe0,
                         .n_experts = 65536,
                         .n_layers = 5};
  const auto spoil = [](SampleBatch& s) {
    s.info.n_rows = 65536;
    s.info.n_pairs = s.info.n_ranges = 0xffffffff;
    s.info.d_model = 0xffffffe0;
  };
  EXPECT_THAT(refusal(spoil, wide), HasSubstr("section rows (detail 0) has 288 bytes"));
}

TEST(Batch, RowBytes_MustBeExact) {
  EXPECT_THAT(refusal([](auto& s) { s.gate_rows.pop_back(); }),
              HasSubstr("rows (detail 0) has 287 bytes, expected 288"));
  EXPECT_THAT(refusal([](auto& s) { s.gate_rows.clear(); }), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal([](auto& s) { s.up_rows.resize(2000); }), HasSubstr("rows (detail 1) has 2000 bytes"));
  EXPECT_THAT(refusal([](auto& s) { s.info.up_class = s.info.gate_class, s.header.layer = 1; }), "accepted");
}

TEST(Batch, QuantisedValueOfMinus128_IsRefusedByRowAndValue) {
  constexpr std::size_t kRow = 72, kBlock = 36, kScale = 4;
  EXPECT_THAT(refusal([](auto& s) { s.gate_rows[3 * kRow + kBlock + kScale + 31] = std::byte{0x80}; }),
              HasSubstr("gate rows: value 63 of row 3 is -128, those of class a8_32 are -127 to 127"));
  EXPECT_THAT(refusal([](auto& s) { s.gate_rows[kScale] = std::byte{0x80}; }), HasSubstr("value 0 of row 0"));
  EXPECT_EQ(refusal([](auto& s) { s.gate_rows[kRow + 1] = std::byte{0x80}; }), "accepted") << "a byte of the scale";
  EXPECT_EQ(refusal([](auto& s) { s.gate_rows[kScale] = std::byte{0x81}; }), "accepted");
  EXPECT_EQ(refusal([](auto& s) { s.up_rows[7] = std::byte{0x80}; }), "accepted") << "up's rows are f32 here";
  const auto swap_classes = [](SampleBatch& s) {
    std::swap(s.info.gate_class, s.info.up_class);
    std::swap(s.gate_rows, s.up_rows);
    s.up_rows[2 * kRow + kScale + 5] = std::byte{0x80};
  };
  EXPECT_THAT(refusal(swap_classes), HasSubstr("up rows: value 5 of row 2 is -128"));
}

TEST(Batch, Pairs_AreRefusedByName) {
  EXPECT_THAT(refusal([](auto& s) { s.pairs.pop_back(); }), HasSubstr("pairs (detail 0) has 32 bytes, expected 40"));
  EXPECT_THAT(refusal([](auto& s) { s.pairs[1].row = 4; }), HasSubstr("pair 1 names row 4, the batch has 4 rows"));
  EXPECT_THAT(refusal([](auto& s) { s.pairs[4].row = 65535; }), HasSubstr("names row 65535"));
  EXPECT_THAT(refusal([](auto& s) { s.pairs[4].expert = 6; }), HasSubstr("pair 4 names expert 6, the model has 6"));
  EXPECT_THAT(refusal([](auto& s) { std::swap(s.pairs[0], s.pairs[1]); }),
              HasSubstr("pair 1 (expert 1, row 0) follows"));
  EXPECT_THAT(refusal([](auto& s) { s.pairs[1] = s.pairs[0]; }), HasSubstr("follows (expert 1, row 0)"));
  EXPECT_THAT(refusal([](auto& s) { s.pairs[2].expert = 0; }), HasSubstr("they rise by expert, then row"));
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::signaling_NaN()})
    EXPECT_THAT(refusal([bad](auto& s) { s.pairs[3].weight = bad; }),
                HasSubstr("pair 3 (row 2, expert 5) has a weight"));
  EXPECT_EQ(refusal([](auto& s) { s.pairs[3].weight = Limits::max(); }), "accepted");
}

TEST(Batch, Ranges_AreRefusedByName) {
  EXPECT_THAT(refusal([](auto& s) { s.ranges[0].count = 0; }), HasSubstr("range 0 is empty"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[1].first = 1; }),
              HasSubstr("range 1 begins at row 1, the one before ends at 2"));
  EXPECT_THAT(refusal([](auto& s) { std::swap(s.ranges[0], s.ranges[1]); }), HasSubstr("range 1 begins at row 0"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[1].count = 3; }), HasSubstr("ends at row 5, the batch has 4 rows"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[1].count = 0xffffffff; }), HasSubstr("ends at row 4294967297"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[0] = {1, 1}; }), HasSubstr("pair 0 names row 0, which lies in no range"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[1].count = 1; }), HasSubstr("pair 1 names row 3, which lies in no range"));
  EXPECT_THAT(refusal([](auto& s) { s.ranges[1] = {3, 1}; }), HasSubstr("names row 2, which lies in no range"));
}

TEST(Batch, RowWithoutPairOrRange_IsAccepted) {
  const auto spoil = [](SampleBatch& s) {
    s.pairs = {{0, 1, 1.0f}, {0, 2, 1.0f}, {3, 2, 1.0f}, {0, 3, 1.0f}, {3, 4, 1.0f}};
    s.ranges = {{0, 1}, {3, 1}};
  };
  EXPECT_EQ(refusal(spoil), "accepted");
}

TEST(Batch, SectionAbsent_IsRefusedByName) {
  const SampleBatch s;
  const std::pair<SectionTag, std::uint16_t> all[] = {{SectionTag::kBatch, 0},
                                                      {SectionTag::kRows, 0},
                                                      {SectionTag::kRows, 1},
                                                      {SectionTag::kPairs, 0},
                                                      {SectionTag::kRanges, 0}};
  const std::span<const std::byte> data[] = {std::as_bytes(std::span(&s.info, 1)), s.gate_rows, s.up_rows,
                                             std::as_bytes(std::span(s.pairs)), std::as_bytes(std::span(s.ranges))};
  for (std::size_t left_out = 0; left_out < std::size(all); ++left_out) {
    FrameBuilder builder;
    builder.begin(s.header);
    for (std::size_t i = 0; i < std::size(all); ++i)
      if (i != left_out) builder.add(all[i].first, all[i].second, data[i]);
    const auto read = read_sample_batch(test::finish(builder));
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().text(), HasSubstr(fmt::format("section {} (detail {}) is absent",
                                                           name(all[left_out].first), all[left_out].second)));
  }
}

TEST(Batch, OtherFrameType_IsRefused) {
  FrameBuilder builder;
  builder.begin({.type = FrameType::kPing});
  const auto read = read_sample_batch(test::finish(builder));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().text(), HasSubstr("is ping, expected batch"));
}

}  // namespace batch_test
}  // namespace terrace::wire
