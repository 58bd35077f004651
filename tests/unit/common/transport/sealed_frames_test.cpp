// What sealed frames promise against whoever sits between the two ends: frames are moved by hand, changed or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/common/transport/sealed_testing.h"

namespace terrace::transport {
namespace sealed_frames_test {

using namespace sealed_testing;

class SealedFrames : public testing::TestWithParam<Cipher> {
 protected:
  const LinkKey link_ = test_link(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, SealedFrames, testing::Values(Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305),
                         [](const auto& test) {
                           return test.param == Cipher::kAes256Gcm ? "Aes256Gcm" : "ChaCha20Poly1305";
                         });

TEST_P(SealedFrames, NothingOfTheBodyIsReadableAndTheSameFrameLooksAnother) {
  SealedPair pair = proven_pair(link_);
  const TestFrame frame(1, 4096);
  const Bytes first = sealed_by(pair.coordinator, frame), second = sealed_by(pair.coordinator, frame);
  const Bytes plain = frame.contiguous();
  ASSERT_EQ(first.size(), plain.size() + 16);
  EXPECT_NE(first, second);
  for (std::size_t at = 64; at + 16 <= plain.size(); at += 16)
    EXPECT_FALSE(std::equal(plain.begin() + at, plain.begin() + at + 16, first.begin() + at)) << at;
}

TEST_P(SealedFrames, AnyOtherBit_ClosesByNameAndNothingIsGivenOn) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{144}}) {
    const TestFrame frame(1, size);
    for (std::size_t bit = 0; bit < 8 * (size + 16); ++bit) {
      SealedPair pair = proven_pair(link_);
      Bytes bent = sealed_by(pair.coordinator, frame);
      bent[bit / 8] ^= std::byte(1u << bit % 8);
      pair.node.pipe->deliver(bent);
      pair.node.poll();
      ASSERT_TRUE(pair.node.frames.empty()) << bit;
      expect_refused(pair.node, ErrorCode::kCorrupt, "sealed frame 0 of lane latency: it does not open");
    }
  }
}

TEST_P(SealedFrames, Truncated_AtEveryLength_ClosesByName) {
  const TestFrame frame(1, 144);
  for (std::size_t bytes = 0; bytes < 144 + 16; ++bytes) {
    SealedPair pair = proven_pair(link_);
    const Bytes whole = sealed_by(pair.coordinator, frame);
    pair.node.pipe->deliver(std::span(whole).first(bytes));
    pair.node.poll();
    expect_refused(pair.node, ErrorCode::kCorrupt, bytes < 80 ? "no room for its tag" : "it does not open");
  }
}

TEST_P(SealedFrames, RepeatedReorderedOrMissing_ClosesByName) {
  const TestFrame first(1, 640), second(2, 640), third(3, 640);
  const std::vector<std::vector<int>> orders = {{0, 0}, {1}, {0, 2}, {0, 1, 0}, {0, 1, 1}, {0, 1, 2, 1}};
  for (const auto& order : orders) {
    SealedPair pair = proven_pair(link_);
    const Bytes sent[] = {sealed_by(pair.coordinator, first), sealed_by(pair.coordinator, second),
                          sealed_by(pair.coordinator, third)};
    for (const int which : order) pair.node.pipe->deliver(sent[which]);
    pair.node.poll();
    EXPECT_EQ(pair.node.frames.size(), order.size() - 1) << "those in their place";
    EXPECT_TRUE(pair.node.closed);
    EXPECT_EQ(pair.node->close_reason().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(pair.node.why(), HasSubstr("sealed frame " + std::to_string(order.size() - 1)));
    EXPECT_EQ(pair.node.pipe->lent(), 0u);
  }
}

TEST_P(SealedFrames, OfAnotherLaneSocketSessionConnectionOrDirection_DoesNotOpen) {
  const TestFrame frame(1, 640);
  const auto expect_stranger = [&](const Bytes& sealed) {
    SealedPair pair = proven_pair(link_);
    pair.node.pipe->deliver(sealed);
    pair.node.poll();
    expect_refused(pair.node, ErrorCode::kCorrupt, "sealed for another connection");
  };
  const std::function<void(LinkKey&)> others[] = {
      [](LinkKey& link) { link.lane = 1; },
      [](LinkKey& link) { link.socket_index = 1; },
      [](LinkKey& link) { link.session ^= 1; },
      [](LinkKey& link) { link.boot_id ^= 1; },
      [](LinkKey& link) { link.key.writable()[0] ^= std::byte{1}; },
  };
  for (const auto& bend : others) {
    LinkKey other = link_;
    bend(other);
    SealedPair elsewhere = proven_pair(other);
    expect_stranger(sealed_by(elsewhere.coordinator, frame));
  }
  SealedPair later = proven_pair(link_, 0x60);  // the same lane, opened again
  expect_stranger(sealed_by(later.coordinator, frame));
  SealedPair mirror = proven_pair(link_);
  expect_stranger(sealed_by(mirror.node, frame));
  expect_stranger(frame.contiguous());  // not sealed at all
}

TEST_P(SealedFrames, AfterOneThatDoesNotOpen_NothingMoreIsTakenOrSent) {
  SealedPair pair = proven_pair(link_);
  const TestFrame frame(1, 640);
  const Bytes good = sealed_by(pair.coordinator, frame);
  Bytes bent = good;
  bent[100] ^= std::byte{1};
  pair.node.pipe->takes_all = false;
  ASSERT_TRUE(pair.node->send(frame.parts()).ok());
  pair.node.pipe->deliver(bent);
  pair.node.pipe->deliver(good);
  pair.node.poll();
  EXPECT_TRUE(pair.node.frames.empty());
  EXPECT_EQ(pair.node.told_sent, std::vector<SendTicket>{1}) << "its memory is the caller's again";
  EXPECT_TRUE(pair.node.closed);
  const auto late = pair.node->send(frame.parts());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), ErrorCode::kPeerGone);
  EXPECT_THAT(late.error().text(), HasSubstr("does not open"));
}

TEST_P(SealedFrames, SlowPeer_OnlyAFewFramesAreSealedAhead) {
  SealedPair pair = proven_pair(link_);
  pair.node.pipe->takes_all = false;
  const TestFrame frame(1, 65536);
  constexpr std::size_t kCount = 40;
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_TRUE(pair.node->send(frame.parts()).ok());
  EXPECT_LE(pair.node.pipe->sent.size(), kSealAhead / 65536 + 1);
  EXPECT_TRUE(pair.node.told_sent.empty());
  pair.node.pipe->takes_all = true;
  carry(pair.coordinator, pair.node);
  ASSERT_EQ(pair.coordinator.frames.size(), kCount);
  EXPECT_EQ(pair.coordinator.frames.back(), frame.contiguous());
  EXPECT_EQ(pair.node.told_sent.size(), kCount);
}

TEST_P(SealedFrames, NumbersUsedUp_BothEndsCloseByName) {
  SealedPair pair{coordinator_of(link_, 0x10, 3), node_of(link_, 0x20, 3)};
  carry(pair.coordinator, pair.node);
  const TestFrame frame(1, 640);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pair.coordinator->send(frame.parts()).ok());
  carry(pair.coordinator, pair.node);
  EXPECT_EQ(pair.node.frames.size(), 3u);
  (void)pair.coordinator->send(frame.parts());
  carry(pair.coordinator, pair.node);
  EXPECT_TRUE(pair.coordinator.closed);
  EXPECT_THAT(pair.coordinator.why(), HasSubstr("3 frames are sealed"));
  EXPECT_EQ(pair.node.frames.size(), 3u);
}

}  // namespace sealed_frames_test
}  // namespace terrace::transport
