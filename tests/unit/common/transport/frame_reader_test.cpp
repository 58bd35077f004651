#include "common/transport/tcp/frame_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "tests/contract/transport_harness.h"

namespace terrace::transport {
namespace {

using Bytes = std::vector<std::byte>;

// Feeds `stream` in pieces of at most `piece` bytes; gives the frames in order. Every byte must find a place.
std::vector<Bytes> read_all(FrameReader& reader, const Bytes& stream, std::size_t piece) {
  std::vector<Bytes> frames;
  std::size_t at = 0;
  for (;;) {
    const auto frame = reader.next_frame();
    EXPECT_TRUE(frame.ok()) << frame.error().text();
    if (!frame.ok()) return frames;
    if (frame->has_value()) {
      frames.emplace_back((*frame)->begin(), (*frame)->end());
      reader.release(**frame);
      continue;
    }
    if (at == stream.size()) return frames;
    std::size_t n = std::min(piece, stream.size() - at);
    std::size_t filled = 0;
    for (const auto space : reader.space()) {
      const std::size_t step = std::min(n - filled, space.size());
      if (step > 0) std::memcpy(space.data(), stream.data() + at + filled, step);
      filled += step;
    }
    EXPECT_GT(filled, 0u) << "no space although more is needed";
    reader.filled(filled);
    at += filled;
  }
}

TEST(FrameReader, AnyCutOfTheStream_GivesTheSameFrames) {
  Bytes stream;
  std::vector<Bytes> expected;
  for (const std::size_t size : {64u, 64u, 80u, 20000u, 64u, 16384u, 16400u, 4096u, 70000u, 64u}) {
    expected.push_back(test::TestFrame(expected.size() + 1, size).contiguous());
    stream.insert(stream.end(), expected.back().begin(), expected.back().end());
  }
  for (const std::size_t piece : {1u, 7u, 63u, 64u, 65u, 1000u, 16383u, 16384u, 16385u, 1000000u}) {
    FrameReader reader({});
    const auto frames = read_all(reader, stream, piece);
    ASSERT_EQ(frames.size(), expected.size()) << "in pieces of " << piece;
    for (std::size_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(frames[i] == expected[i]) << "in pieces of " << piece;
    EXPECT_EQ(reader.bytes_of_unfinished(), 0u);
  }
}

TEST(FrameReader, LargePayload_IsReadIntoItsFinalPlace) {
  FrameReader reader({});
  const Bytes bytes = test::TestFrame(1, 100000).contiguous();
  std::memcpy(reader.space()[1].data(), bytes.data(), 64);
  reader.filled(64);
  ASSERT_FALSE(reader.next_frame()->has_value());
  const auto rest = reader.space()[0];
  EXPECT_EQ(rest.size(), bytes.size() - 64);
  std::memcpy(rest.data(), bytes.data() + 64, rest.size());
  reader.filled(rest.size());
  const auto frame = reader.next_frame();
  ASSERT_TRUE(frame.ok() && frame->has_value());
  EXPECT_EQ((*frame)->data() + 64, rest.data());
  EXPECT_TRUE(std::ranges::equal(**frame, bytes));
}

// A batch of a decode step, or the reply: in whatever pieces it comes, its rows stay where the system wrote them.
TEST(FrameReader, FrameThatComesAlone_IsGivenOutWhereItWasRead) {
  for (const std::size_t size : {1024u, 5120u, 15360u, 16384u}) {
    for (const std::size_t piece : {100u, 4096u, 1000000u}) {
      FrameReader reader({});
      for (std::uint64_t number = 0; number < 3; ++number) {
        const Bytes bytes = test::TestFrame(number, size).contiguous();
        const std::byte* const place = reader.space()[1].data();
        std::optional<std::span<const std::byte>> frame;
        for (std::size_t at = 0; at < size;) {
          const std::span<std::byte> space = reader.space()[1];
          const std::size_t n = std::min({piece, size - at, space.size()});
          std::memcpy(space.data(), bytes.data() + at, n);
          reader.filled(n);
          at += n;
          frame = reader.next_frame().value();
          ASSERT_EQ(frame.has_value(), at == size);
          if (!frame) {
            EXPECT_EQ(reader.length_of_unfinished(), size);
          }
        }
        EXPECT_EQ(static_cast<const void*>(frame->data()), place) << size << " in pieces of " << piece;
        EXPECT_TRUE(std::equal(frame->begin(), frame->end(), bytes.begin(), bytes.end()));
        reader.release(*frame);
      }
      EXPECT_EQ(reader.bytes_copied(), 0u) << size << " in pieces of " << piece;
    }
  }
}

TEST(FrameReader, WhatIsCopied_IsNoMoreThanTheReadAheadAFrame) {
  Bytes stream;
  constexpr std::size_t kFrames = 20;
  for (std::size_t i = 0; i < kFrames; ++i) {
    const Bytes frame = test::TestFrame(i, i % 2 == 0 ? 1 << 20 : 5120).contiguous();
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  FrameReader reader({});
  ASSERT_EQ(read_all(reader, stream, 1000000).size(), kFrames);
  EXPECT_GT(reader.bytes_copied(), 0u);
  EXPECT_LE(reader.bytes_copied(), kFrames * 16384);
}

TEST(FrameReader, UnfinishedFrame_IsCounted) {
  FrameReader reader({});
  const Bytes bytes = test::TestFrame(1, 100000).contiguous();
  const Bytes cut(bytes.begin(), bytes.begin() + 5000);
  EXPECT_TRUE(read_all(reader, cut, 1000).empty());
  EXPECT_EQ(reader.bytes_of_unfinished(), 5000u);
  EXPECT_EQ(reader.length_of_unfinished(), bytes.size());
}

}  // namespace
}  // namespace terrace::transport
