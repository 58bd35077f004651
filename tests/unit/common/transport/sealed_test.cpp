// What both ends of a sealed connection prove to each other, against whoever sits between them: frames are moved by
// hand, changed or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/security/sha256.h"
#include "common/transport/loopback/loopback.h"
#include "tests/unit/common/transport/sealed_testing.h"

namespace terrace::transport {
namespace sealed_test {

using namespace sealed_testing;

constexpr Cipher kCiphers[] = {Cipher::kPlain, Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305};

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

}  // namespace sealed_test
}  // namespace terrace::transport
