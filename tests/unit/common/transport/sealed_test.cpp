// What sealed connections promise against whoever sits between the two ends: frames are moved by hand, changed or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <functional>
#include <random>

#include "common/security/sha256.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/sealed/sealed_connection.h"
#include "tests/contract/sealed_transport.h"
#include "tests/contract/transport_harness.h"
#include "tests/unit/common/transport/pipe.h"

namespace terrace::transport {
namespace {

using namespace test;
using security::Cipher;
using testing::HasSubstr;
using wire::FrameType;

constexpr Cipher kCiphers[] = {Cipher::kPlain, Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305};

// One end over a pipe, and what it gave to the layers above.
struct SealedEnd {
  std::unique_ptr<Connection> connection;
  Pipe* pipe = nullptr;
  std::vector<Bytes> frames;
  std::vector<SendTicket> told_sent;
  bool closed = false;

  Connection* operator->() const { return connection.get(); }
  void poll() {
    for (bool more = true; more;) {
      std::array<Event, 4> events;
      const std::size_t n = connection->poll(events);
      for (const Event& event : std::span(events).first(n)) {
        if (event.kind == Event::Kind::kSent) told_sent.push_back(event.ticket);
        if (event.kind == Event::Kind::kClosed) closed = true;
        if (event.kind != Event::Kind::kReceived) continue;
        frames.emplace_back(event.frame.begin(), event.frame.end());
        connection->release(event.frame);
      }
      more = n > 0;
    }
  }
  std::string why() const { return closed ? connection->close_reason().text() : "it is open"; }
  Bytes take_sent() {
    if (pipe->sent.empty()) throw std::runtime_error("nothing was sent");
    Bytes frame = std::move(pipe->sent.front());
    pipe->sent.pop_front();
    return frame;
  }
};

wire::Nonce nonce_of(unsigned first) {
  wire::Nonce nonce;
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(first + i);
  return nonce;
}

SealedEnd end_of(std::unique_ptr<Handshake> handshake, std::uint64_t most_frames = kMostSealedFrames) {
  SealedEnd end;
  auto pipe = std::make_unique<Pipe>();
  end.pipe = pipe.get();
  end.connection = std::make_unique<SealedConnection>(std::move(pipe), std::move(handshake), 64, most_frames);
  return end;
}
SealedEnd coordinator_of(const LinkKey& link, unsigned nonce = 0x10, std::uint64_t most_frames = kMostSealedFrames) {
  return end_of(std::make_unique<Handshake>(link, nonce_of(nonce)), most_frames);
}
SealedEnd node_of(const LinkKey& link, unsigned nonce = 0x20, std::uint64_t most_frames = kMostSealedFrames) {
  return end_of(std::make_unique<Handshake>(finder_of(link), nonce_of(nonce)), most_frames);
}

// Everything that either has sent reaches the other, until both are quiet.
void carry(SealedEnd& a, SealedEnd& b) {
  for (int quiet = 0; quiet < 2;) {
    quiet = a.pipe->sent.empty() && b.pipe->sent.empty() ? quiet + 1 : 0;
    while (!a.pipe->sent.empty()) b.pipe->deliver(a.take_sent());
    while (!b.pipe->sent.empty()) a.pipe->deliver(b.take_sent());
    a.poll();
    b.poll();
  }
}

struct SealedPair {
  SealedEnd coordinator;
  SealedEnd node;
};
SealedPair proven_pair(const LinkKey& link, unsigned node_nonce = 0x20) {
  SealedPair pair{coordinator_of(link), node_of(link, node_nonce)};
  carry(pair.coordinator, pair.node);
  EXPECT_TRUE(pair.coordinator->security().proven && pair.node->security().proven)
      << pair.coordinator.why() << "; " << pair.node.why();
  return pair;
}

// What `from` makes of a frame.
Bytes sealed_by(SealedEnd& from, const TestFrame& frame) {
  EXPECT_TRUE(from->send(frame.parts()).ok());
  return from.take_sent();
}

Bytes with_checksum(Bytes frame) {
  std::memset(frame.data() + 56, 0, 8);
  const std::uint64_t checksum = XXH3_64bits(frame.data(), frame.size());
  std::memcpy(frame.data() + 56, &checksum, sizeof checksum);
  return frame;
}

Bytes words(
    FrameType type, const std::function<void(wire::FrameBuilder&)>& add = [](wire::FrameBuilder&) {}) {
  wire::FrameBuilder builder;
  builder.begin({.type = type, .session = type == FrameType::kChallenge ? 0 : test_link(Cipher::kPlain).session});
  add(builder);
  Bytes all;
  for (const auto part : builder.finish()) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes challenge_words() {
  return words(FrameType::kChallenge, [](wire::FrameBuilder& b) { wire::add_challenge(b, {}); });
}

// The end was hung up on or hung up itself, and gave nothing to the layers above.
void expect_refused(const SealedEnd& end, ErrorCode code, const std::string& says) {
  EXPECT_TRUE(end.closed);
  EXPECT_TRUE(end.pipe->closed());
  EXPECT_EQ(end->close_reason().code(), code) << end.why();
  EXPECT_THAT(end.why(), HasSubstr(says));
  EXPECT_THAT(end.why(), HasSubstr("pipe: "));
  EXPECT_TRUE(end.frames.empty());
  EXPECT_EQ(end.pipe->lent(), 0u);
}

// ---- bytes --------------------------------------------------------------------------------------------------------

// By another implementation (Python's hmac and cryptography): docs/wire.md 12 to the byte.
TEST(SealedBytes, KeysProofsAndFrames_AsSpecified) {
  LinkKey link = test_link(Cipher::kAes256Gcm);
  link.lane = 1;
  link.socket_index = 2;
  for (std::size_t i = 0; i < security::Key::kBytes; ++i) link.key.writable()[i] = static_cast<std::byte>(i);
  const auto aes = derive_secrets(link, nonce_of(0x10), nonce_of(0x20));
  ASSERT_TRUE(aes.ok());
  EXPECT_EQ(security::to_hex(aes->to_node.bytes()), "a71395f621c47156671f6a4ec089f8f9e5fa0b3f7a7e7c7a9e9524dab70cf845");
  EXPECT_EQ(security::to_hex(aes->to_coordinator.bytes()),
            "609a2fed715038208faee5b9eb260c931a9b6066aa532ef9af02e302428baa66");
  EXPECT_EQ(security::to_hex(aes->coordinator_proof),
            "fd705781285a7df1c3b4e2e0ad4c2c3a2297ceb155900de76c21d112864437bf");
  EXPECT_EQ(security::to_hex(aes->node_proof), "26fbc4de667dc2f827ada63ff9a4e290e550c8c59f1d195dd1458e77c6de3db4");

  wire::FrameBuilder busy;
  busy.begin({.type = FrameType::kBusy,
              .lane = wire::Lane::kBulk,
              .flags = wire::kFlagNoChecksum,
              .session = link.session,
              .sequence = 7});
  wire::add_busy(busy, {.expected_us = 1000});
  std::string header = "5452524301000501010001000000000088776655443322110700000000000000000000000000000030000000";
  header.resize(2 * wire::kHeaderBytes, '0');
  const std::pair<Cipher, const char*> expected[] = {
      {Cipher::kAes256Gcm,
       "00b4d835146749e69f0d434da35a35d87c65e6dc52789814317f6a780884d8fe49bd72f9ba8a700da691a28f846bb21d"},
      {Cipher::kChaCha20Poly1305,
       "94a7c1eaef48a5686d19b6a46f936e6f18bff40682b8a30b98df916b22da390f99339508711bdb4bc9809afb72671d1f"}};
  for (const auto& [cipher, bytes] : expected) {
    link.cipher = cipher;
    SealedPair pair = proven_pair(link);
    ASSERT_TRUE(pair.node->send(busy.finish()).ok());
    EXPECT_EQ(security::to_hex(pair.node.take_sent()), header + bytes);
  }
}

// ---- proofs -------------------------------------------------------------------------------------------------------

TEST(SealedHandshake, BothEndsProveThemselvesAndFramesPass) {
  for (const Cipher cipher : kCiphers) {
    LinkKey link = test_link(cipher);
    link.lane = 2;
    SealedPair pair = proven_pair(link);
    const TestFrame frame(1, 5008);
    ASSERT_TRUE(pair.coordinator->send(frame.parts()).ok());
    ASSERT_TRUE(pair.node->send(frame.parts()).ok());
    carry(pair.coordinator, pair.node);
    for (SealedEnd* end : {&pair.coordinator, &pair.node}) {
      ASSERT_EQ(end->frames.size(), 1u);
      EXPECT_EQ(end->frames[0], frame.contiguous());
      const ConnectionSecurity security = (*end)->security();
      EXPECT_EQ(security.session, link.session);
      EXPECT_EQ(security.lane, 2);
      EXPECT_EQ(security.cipher, cipher);
      EXPECT_EQ(security.seal_bytes, cipher == Cipher::kPlain ? 0u : 16u);
    }
  }
}

TEST(SealedHandshake, SentBeforeItIsOver_LeavesAfterwardsSealed) {
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  SealedEnd coordinator = coordinator_of(link), node = node_of(link);
  const TestFrame frame(1, 640);
  ASSERT_TRUE(coordinator->send(frame.parts()).ok());
  coordinator.poll();
  EXPECT_TRUE(coordinator.pipe->sent.empty());
  coordinator.pipe->deliver(node.take_sent());
  coordinator.poll();
  EXPECT_EQ(coordinator.pipe->sent.size(), 1u) << "the proof alone";
  carry(coordinator, node);
  ASSERT_EQ(node.frames.size(), 1u);
  EXPECT_EQ(node.frames[0], frame.contiguous());
  EXPECT_EQ(coordinator.told_sent, std::vector<SendTicket>{1});
}

TEST(SealedHandshake, WrongKeySessionOrNode_OneRefusalAndNothingMoves) {
  const LinkKey right = test_link(Cipher::kAes256Gcm);
  const std::function<void(LinkKey&)> wrongs[] = {
      [](LinkKey& link) { link.key.writable()[31] ^= std::byte{1}; },
      [](LinkKey& link) { link.session ^= 1; },
      [](LinkKey& link) { link.boot_id ^= 1; },  // of an earlier start
      [](LinkKey& link) { link.cipher = Cipher::kChaCha20Poly1305; },
      [](LinkKey& link) { link.cipher = Cipher::kPlain; },
  };
  for (const auto& bend : wrongs) {
    LinkKey wrong = right;
    bend(wrong);
    SealedEnd coordinator = coordinator_of(wrong), node = node_of(right);
    ASSERT_TRUE(coordinator->send(TestFrame(1, 640).parts()).ok());
    carry(coordinator, node);
    expect_refused(node, ErrorCode::kRefused, "no session of this node has this id and key");
    expect_refused(coordinator, ErrorCode::kRefused, "no session of this node has this id and key");
    EXPECT_EQ(coordinator.told_sent, std::vector<SendTicket>{1}) << "its memory is the caller's again";
  }
}

TEST(SealedHandshake, ProofOfAnotherConnection_OpensNothing) {
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  SealedEnd coordinator = coordinator_of(link), node = node_of(link, 0x20);
  coordinator.pipe->deliver(node.take_sent());
  coordinator.poll();
  const Bytes proof = coordinator.take_sent();
  SealedEnd again = node_of(link, 0x60);
  again.pipe->deliver(proof);
  again.poll();
  expect_refused(again, ErrorCode::kRefused, "no session");
}

TEST(SealedHandshake, NodeWithoutTheKey_IsHungUpOn) {
  SealedEnd coordinator = coordinator_of(test_link(Cipher::kAes256Gcm));
  coordinator.pipe->deliver(challenge_words());
  coordinator.poll();
  coordinator.pipe->deliver(words(FrameType::kAccept, [](auto& b) { wire::add_accept(b, {}); }));
  coordinator.poll();
  expect_refused(coordinator, ErrorCode::kRefused, "does not prove");
}

TEST(SealedHandshake, AnyBitOfAnyWord_EndsItWithoutAFrameForTheLayersAbove) {
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  const TestFrame frame(1, 640);
  for (const bool checksum_made_right : {false, true}) {
    for (int word = 0; word < 3; ++word) {  // challenge, proof, accept
      for (std::size_t bit = 0;; ++bit) {
        SealedEnd coordinator = coordinator_of(link), node = node_of(link);
        ASSERT_TRUE(coordinator->send(frame.parts()).ok());
        SealedEnd* const ends[] = {&node, &coordinator, &node};
        for (int said = 0; said < word; ++said) {
          ends[said + 1]->pipe->deliver(ends[said]->take_sent());
          ends[said + 1]->poll();
        }
        Bytes bent = ends[word]->take_sent();
        if (bit == 8 * bent.size()) break;
        bent[bit / 8] ^= std::byte(1u << bit % 8);
        if (checksum_made_right) bent = with_checksum(std::move(bent));
        SealedEnd& to = word == 1 ? node : coordinator;
        to.pipe->deliver(bent);
        to.poll();
        carry(coordinator, node);
        const bool checksum_bit = bit / 8 >= 56 && bit / 8 < 64;
        if (checksum_made_right && checksum_bit) continue;  // it is what it was
        ASSERT_TRUE(node.frames.empty() && coordinator.frames.empty()) << word << " " << bit;
        ASSERT_TRUE(node.closed || coordinator.closed) << word << " " << bit;
        ASSERT_FALSE(node->security().proven && coordinator->security().proven) << word << " " << bit;
      }
    }
  }
}

TEST(SealedHandshake, WordsOutOfOrderMissingOrOversized_NamedErrors) {
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  const Bytes challenge = challenge_words();
  const Bytes proof = words(FrameType::kProof, [](auto& b) { wire::add_proof(b, {}); });
  const Bytes accept = words(FrameType::kAccept, [](auto& b) { wire::add_accept(b, {}); });
  const Bytes hello = words(FrameType::kHello, [](auto& b) { wire::add_hello(b, {.largest_frame = 4096}); });
  const auto oversized = [](FrameType type, wire::SectionTag tag) {
    return words(type, [tag](auto& b) {
      static const Bytes data(160);
      b.add(tag, 0, data);
    });
  };
  const auto at_node = [&](const Bytes& frame, ErrorCode code, const std::string& says) {
    SealedEnd node = node_of(link);
    const Bytes said = node.take_sent();
    node.pipe->deliver(frame);
    node.poll();
    expect_refused(node, code, says);
    EXPECT_EQ(node.pipe->sent.size(), 1u) << "it says why, once";
  };
  at_node(hello, ErrorCode::kCorrupt, "a hello frame came where proof is due");
  at_node(accept, ErrorCode::kCorrupt, "a accept frame came where proof is due");
  at_node(challenge, ErrorCode::kCorrupt, "a challenge frame came where proof is due");
  at_node(TestFrame(1, 160).contiguous(), ErrorCode::kCorrupt, "a slab frame came where proof is due");
  at_node(words(FrameType::kProof), ErrorCode::kCorrupt, "section proof (detail 0) is absent");
  at_node(oversized(FrameType::kProof, wire::SectionTag::kProof), ErrorCode::kCorrupt, "has 160 bytes, expected 56");
  at_node(Bytes(16), ErrorCode::kCorrupt, "frame header");
  at_node({}, ErrorCode::kCorrupt, "frame header");
  at_node(proof, ErrorCode::kRefused, "no session");

  const auto at_coordinator = [&](const std::vector<Bytes>& frames, ErrorCode code, const std::string& says) {
    SealedEnd coordinator = coordinator_of(link);
    for (const Bytes& frame : frames) coordinator.pipe->deliver(frame);
    coordinator.poll();
    expect_refused(coordinator, code, says);
  };
  at_coordinator({accept}, ErrorCode::kCorrupt, "a accept frame came where challenge is due");
  at_coordinator({hello}, ErrorCode::kCorrupt, "a hello frame came where challenge is due");
  at_coordinator({challenge, challenge}, ErrorCode::kCorrupt, "a challenge frame came where accept is due");
  at_coordinator({challenge, hello}, ErrorCode::kCorrupt, "a hello frame came where accept is due");
  at_coordinator({oversized(FrameType::kChallenge, wire::SectionTag::kChallenge)}, ErrorCode::kCorrupt, "expected 16");
  at_coordinator({challenge, oversized(FrameType::kAccept, wire::SectionTag::kAccept)}, ErrorCode::kCorrupt,
                 "expected 32");
  at_coordinator({words(FrameType::kError, [](auto& b) { wire::add_error(b, ErrorCode::kBusy, "no\x1b room"); })},
                 ErrorCode::kBusy, "no? room");
  SealedEnd cut = coordinator_of(link);
  cut.pipe->deliver(challenge);
  cut.pipe->peer_ended = true;
  cut.poll();
  expect_refused(cut, ErrorCode::kPeerGone, "closed by the peer");
}

TEST(SealedHandshake, NodeThatHangsUpBeforeTheProof_IsHeard_AndProvesNothingAfterwards) {
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  SealedEnd coordinator = coordinator_of(link), node = node_of(link);
  wire::FrameBuilder late;
  late.begin({.type = FrameType::kError});
  wire::add_error(late, ErrorCode::kDeadline, "no hello came");
  ASSERT_TRUE(node->send(late.finish()).ok());
  carry(coordinator, node);
  expect_refused(coordinator, ErrorCode::kDeadline, "no hello came");
  EXPECT_FALSE(node->security().proven);
  EXPECT_EQ(node.told_sent, std::vector<SendTicket>{1});
}

// ---- sealed frames ------------------------------------------------------------------------------------------------

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

// ---- proven and plain ---------------------------------------------------------------------------------------------

TEST(ProvenConnection, FrameThatSaysItHasNoChecksum_ClosesByName) {
  SealedPair pair = proven_pair(test_link(Cipher::kPlain));
  Bytes frame = TestFrame(1, 640).contiguous();
  frame[8] |= std::byte{wire::kFlagNoChecksum};
  pair.node.pipe->deliver(frame);
  pair.node.poll();
  expect_refused(pair.node, ErrorCode::kCorrupt, "without a checksum");
}

TEST(SealedTransport, WithoutKeys_NeitherListensNorConnects_AndOthersRefuseOne) {
  const auto loopback = std::make_shared<LoopbackTransport>();
  SealedTransport sealed(loopback);
  EXPECT_EQ(sealed.listen("a:1", {}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(sealed.connect("a:1", {}, 1s).error().code(), ErrorCode::kInvalidArgument);
  const LinkKey link = test_link(Cipher::kPlain);
  ASSERT_TRUE(loopback->listen("a:1", {}).ok());
  const auto raw = loopback->connect("a:1", {.key = &link}, 1s);
  EXPECT_EQ(raw.error().code(), ErrorCode::kInvalidArgument) << "it would have proven nothing, unseen";
}

TEST(SealedTransport, NoRandomness_NoConnection) {
  const auto loopback = std::make_shared<LoopbackTransport>();
  const LinkKey link = test_link(Cipher::kAes256Gcm);
  const auto none = [](std::span<std::byte>) -> Status { return Error(ErrorCode::kIo, "no random bytes"); };
  SealedTransport sealed(loopback, finder_of(link), none);
  const auto listener = sealed.listen("a:1", {});
  ASSERT_TRUE(listener.ok());
  EXPECT_THAT(sealed.connect("a:1", {.key = &link}, 1s).error().text(), HasSubstr("no random bytes"));
}

}  // namespace
}  // namespace terrace::transport
