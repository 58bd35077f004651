#include "common/wire/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/unit/common/wire/frames.h"

namespace terrace::wire {
namespace messages_test {

using test::FrameBytes;
using testing::HasSubstr;

// What `read` makes of a frame of this type that `add` fills.
template <class Add, class Read>
auto round_trip(FrameType type, Add add, Read read) {
  FrameBuilder builder;
  builder.begin({.type = type});
  add(builder);
  const FrameBytes bytes = test::finish(builder);
  const auto frame = decode_frame(bytes.view());
  EXPECT_TRUE(frame.ok()) << frame.error().text();
  return read(*frame);
}

auto hello_after(const Hello& hello) {
  return round_trip(
      FrameType::kHello, [&](FrameBuilder& b) { add_hello(b, hello); }, read_hello);
}
auto welcome_after(const Welcome& welcome) {
  return round_trip(
      FrameType::kWelcome, [&](FrameBuilder& b) { add_welcome(b, welcome); }, read_welcome);
}
auto error_after(std::string_view text) {
  return round_trip(
      FrameType::kError, [&](FrameBuilder& b) { add_error(b, ErrorCode::kStaleEpoch, text); }, read_error);
}

TEST(Hello, RoundTripsAndIsChecked) {
  Hello hello{.largest_frame = 4096, .socket_index = 3};
  const auto read = hello_after(hello);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->largest_frame, 4096u);
  EXPECT_EQ(read->socket_index, 3u);
  hello.largest_frame = 63;
  EXPECT_THAT(hello_after(hello).error().text(), HasSubstr("63 bytes"));
  hello.largest_frame = kLargestFrame + 1;
  EXPECT_FALSE(hello_after(hello).ok());
  hello.largest_frame = kLargestFrame;
  hello.reserved = 1;
  EXPECT_THAT(hello_after(hello).error().text(), HasSubstr("reserved"));
}

TEST(EndpointMessage, RoundTripsAndIsChecked) {
  const auto with = [](std::uint64_t window, std::size_t address_bytes) {
    const std::vector<std::byte> address(address_bytes, std::byte{0x5a});
    return round_trip(
        FrameType::kEndpoint,
        [&](FrameBuilder& b) {
          add_endpoint(b, {{.token = 7, .window = window}, address});
        },
        [&](const Frame& frame) -> Result<EndpointInfo> {
          TERRACE_ASSIGN_OR_RETURN(const EndpointMessage message, read_endpoint(frame));
          EXPECT_TRUE(std::ranges::equal(message.address, address));
          return message.info;
        });
  };
  const auto read = with(kHeaderBytes, kLargestWorkerAddress);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->token, 7u);
  EXPECT_EQ(read->window, kHeaderBytes);
  EXPECT_TRUE(with(~std::uint64_t{0}, 1).ok());
  EXPECT_THAT(with(4096, 0).error().text(), HasSubstr("16 bytes, it has 16 and an address of 1 to 4096"));
  EXPECT_THAT(with(4096, kLargestWorkerAddress + 1).error().text(), HasSubstr("4113 bytes"));
  EXPECT_THAT(with(63, 100).error().text(), HasSubstr("63 bytes"));
  const auto absent = round_trip(
      FrameType::kEndpoint, [](FrameBuilder&) {}, read_endpoint);
  EXPECT_THAT(absent.error().text(), HasSubstr("endpoint is absent"));
}

TEST(Welcome, RoundTripsAndIsChecked) {
  Welcome welcome{.largest_frame = 8192, .credit_bytes = 4096, .credit_frames = 2};
  const auto read = welcome_after(welcome);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->largest_frame, 8192u);
  EXPECT_EQ(read->credit_bytes, 4096u);
  EXPECT_EQ(read->credit_frames, 2u);
  welcome.credit_frames = 0;
  EXPECT_THAT(welcome_after(welcome).error().text(), HasSubstr("0 frames and 4096 bytes"));
  welcome.credit_frames = 1;
  welcome.credit_bytes = 0;
  EXPECT_FALSE(welcome_after(welcome).ok());
}

TEST(Busy, RoundTrips) {
  const auto read = round_trip(
      FrameType::kBusy, [](FrameBuilder& b) { add_busy(b, {.expected_us = 250}); }, read_busy);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->expected_us, 250u);
  const auto spoilt = round_trip(
      FrameType::kBusy, [](FrameBuilder& b) { add_busy(b, {.reserved = 1}); }, read_busy);
  EXPECT_FALSE(spoilt.ok());
}

TEST(ErrorFrame, CarriesCodeAndSentence) {
  const auto read = error_after("batch 8 names epoch 40, which this node was told to forget");
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->code, ErrorCode::kStaleEpoch);
  EXPECT_EQ(read->text, "batch 8 names epoch 40, which this node was told to forget");
  EXPECT_EQ(error_after("")->text, "");
}

TEST(ErrorFrame, TextIsCutAndMadePrintable) {
  EXPECT_EQ(error_after(std::string(600, 'x'))->text, std::string(512, 'x'));
  EXPECT_EQ(error_after("a\x1b[31m\n\x7f\xc3\xa9z")->text, "a?[31m????z");
  // A peer that does not cut: the reader does.
  const std::string longer(4 + 700, 'y');
  const auto read = round_trip(
      FrameType::kError,
      [&](FrameBuilder& b) {
        b.add_copy(SectionTag::kError, 0, std::vector<std::byte>(4), std::as_bytes(std::span(longer)));
      },
      read_error);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->text.size(), kMaxErrorText);
}

TEST(ErrorFrame, UnknownCodeOrNone_IsRefused) {
  const auto with = [](std::vector<std::byte> data) {
    return round_trip(
        FrameType::kError, [&](FrameBuilder& b) { b.add(SectionTag::kError, 0, data); }, read_error);
  };
  EXPECT_THAT(with({std::byte{14}, {}, {}, {}}).error().text(), HasSubstr("code 14 is not known"));
  EXPECT_THAT(with({{}, {}, {}}).error().text(), HasSubstr("has 3 bytes"));
  EXPECT_THAT(round_trip(
                  FrameType::kError, [](FrameBuilder&) {}, read_error)
                  .error()
                  .text(),
              HasSubstr("absent"));
}

TEST(SlabPiece, RoundTripsAndStaysInsideItsSlab) {
  const std::vector<std::byte> data(20, std::byte{4});
  const auto with = [&](SlabPiece piece, std::size_t n) {
    return round_trip(
        FrameType::kSlab, [&](FrameBuilder& b) { add_slab_piece(b, piece, std::span(data).first(n)); },
        [](const Frame& frame) -> Result<SlabPiece> {
          TERRACE_ASSIGN_OR_RETURN(const SlabPieceView view, read_slab_piece(frame));
          return view.piece;
        });
  };
  const auto read = with({.layer = 1, .expert = 2, .offset = 30, .slab_bytes = 50}, 20);
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_EQ(read->layer, 1u);
  EXPECT_EQ(read->expert, 2u);
  EXPECT_EQ(read->offset, 30u);
  EXPECT_EQ(read->slab_bytes, 50u);
  EXPECT_FALSE(with({.offset = 31, .slab_bytes = 50}, 20).ok());
  EXPECT_FALSE(with({.offset = 51, .slab_bytes = 50}, 20).ok());
  EXPECT_FALSE(with({.offset = ~std::uint64_t{0}, .slab_bytes = 50}, 20).ok());
  EXPECT_THAT(with({.offset = 0, .slab_bytes = 50}, 0).error().text(), HasSubstr("0 bytes at offset 0"));
}

TEST(Handshake, HeaderFieldsThatNoProofCovers_AreRefused) {
  const auto with = [](const FrameHeader& header) {
    FrameBuilder builder;
    builder.begin(header);
    add_proof(builder, {.socket_index = 3});
    const FrameBytes bytes = test::finish(builder);
    const auto frame = decode_frame(bytes.view());
    return frame.ok() ? read_proof(*frame) : Result<Proof>(frame.error());
  };
  const FrameHeader good{.type = FrameType::kProof, .lane = Lane::kBulk, .session = 5};
  ASSERT_TRUE(with(good).ok()) << with(good).error().text();
  EXPECT_EQ(with(good)->socket_index, 3u);
  const std::function<void(FrameHeader&)> bends[] = {
      [](FrameHeader& h) { h.layer = 1; },        [](FrameHeader& h) { h.sequence = 1; },
      [](FrameHeader& h) { h.epoch = 1; },        [](FrameHeader& h) { h.credit_frames = 1; },
      [](FrameHeader& h) { h.credit_bytes = 1; }, [](FrameHeader& h) { h.flags = kFlagNoChecksum; },
  };
  for (const auto& bend : bends) {
    FrameHeader bent = good;
    bend(bent);
    EXPECT_THAT(with(bent).error().text(), HasSubstr("header fields beside type, lane and session"));
  }
}

TEST(Messages, WrongSize_IsRefused) {
  for (const std::size_t n : {0u, 1u, 15u, 17u, 1000u}) {
    const std::vector<std::byte> data(n);
    const auto read = round_trip(
        FrameType::kHello, [&](FrameBuilder& b) { b.add(SectionTag::kHello, 0, data); }, read_hello);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().text(), HasSubstr("expected 16"));
  }
}

}  // namespace messages_test
}  // namespace terrace::wire
