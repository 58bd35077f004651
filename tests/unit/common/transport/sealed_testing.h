// Both ends of a sealed connection, whose frames a test carries by hand.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/transport/sealed/sealed_connection.h"
#include "tests/contract/sealed_transport.h"
#include "tests/contract/transport_harness.h"
#include "tests/unit/common/transport/pipe.h"

namespace terrace::transport::sealed_testing {

using namespace test;
using security::Cipher;
using testing::HasSubstr;
using wire::FrameType;

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

inline wire::Nonce nonce_of(unsigned first) {
  wire::Nonce nonce;
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(first + i);
  return nonce;
}

inline SealedEnd end_of(std::unique_ptr<Handshake> handshake, std::uint64_t most_frames = kMostSealedFrames) {
  SealedEnd end;
  auto pipe = std::make_unique<Pipe>();
  end.pipe = pipe.get();
  end.connection = std::make_unique<SealedConnection>(std::move(pipe), std::move(handshake), 64, most_frames);
  return end;
}
inline SealedEnd coordinator_of(const LinkKey& link, unsigned nonce = 0x10,
                                std::uint64_t most_frames = kMostSealedFrames) {
  return end_of(std::make_unique<Handshake>(link, nonce_of(nonce)), most_frames);
}
inline SealedEnd node_of(const LinkKey& link, unsigned nonce = 0x20, std::uint64_t most_frames = kMostSealedFrames) {
  return end_of(std::make_unique<Handshake>(finder_of(link), nonce_of(nonce)), most_frames);
}

// Everything that either has sent reaches the other, until both are quiet.
inline void carry(SealedEnd& a, SealedEnd& b) {
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
inline SealedPair proven_pair(const LinkKey& link, unsigned node_nonce = 0x20) {
  SealedPair pair{coordinator_of(link), node_of(link, node_nonce)};
  carry(pair.coordinator, pair.node);
  EXPECT_TRUE(pair.coordinator->security().proven && pair.node->security().proven)
      << pair.coordinator.why() << "; " << pair.node.why();
  return pair;
}

// What `from` makes of a frame.
inline Bytes sealed_by(SealedEnd& from, const TestFrame& frame) {
  EXPECT_TRUE(from->send(frame.parts()).ok());
  return from.take_sent();
}

inline Bytes with_checksum(Bytes frame) {
  std::memset(frame.data() + 56, 0, 8);
  const std::uint64_t checksum = XXH3_64bits(frame.data(), frame.size());
  std::memcpy(frame.data() + 56, &checksum, sizeof checksum);
  return frame;
}

inline Bytes words(
    FrameType type, const std::function<void(wire::FrameBuilder&)>& add = [](wire::FrameBuilder&) {}) {
  wire::FrameBuilder builder;
  builder.begin({.type = type, .session = type == FrameType::kChallenge ? 0 : test_link(Cipher::kPlain).session});
  add(builder);
  Bytes all;
  for (const auto part : builder.finish()) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline Bytes challenge_words() {
  return words(FrameType::kChallenge, [](wire::FrameBuilder& b) { wire::add_challenge(b, {}); });
}

// The end was hung up on or hung up itself, and gave nothing to the layers above.
inline void expect_refused(const SealedEnd& end, ErrorCode code, const std::string& says) {
  EXPECT_TRUE(end.closed);
  EXPECT_TRUE(end.pipe->closed());
  EXPECT_EQ(end->close_reason().code(), code) << end.why();
  EXPECT_THAT(end.why(), HasSubstr(says));
  EXPECT_THAT(end.why(), HasSubstr("pipe: "));
  EXPECT_TRUE(end.frames.empty());
  EXPECT_EQ(end.pipe->lent(), 0u);
}

}  // namespace terrace::transport::sealed_testing
