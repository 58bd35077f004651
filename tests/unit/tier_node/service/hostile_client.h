// A hostile client of the data port, and an honest one beside it: frames that can be bent at will under a right
// checksum, and what must be true after each.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "tests/unit/tier_node/support/node_parts.h"
#include "tier_node/service/data_server.h"

namespace terrace::node::test {

using wire::FrameType;
using wire::SectionTag;

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}
template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// A frame to be bent: header and sections as values.
struct TestFrame {
  struct TestSection {
    SectionTag tag;
    std::uint16_t detail = 0;
    Bytes data;
  };
  wire::FrameHeader header;
  std::vector<TestSection> sections;

  Bytes bytes() const {
    wire::FrameBuilder builder;
    builder.begin(header);
    for (const TestSection& section : sections) builder.add(section.tag, section.detail, section.data);
    Bytes all;
    for (const auto part : builder.finish()) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  // Where the n-th section's header lies.
  std::size_t offset(std::size_t nth) const {
    std::size_t at = wire::kHeaderBytes;
    for (std::size_t i = 0; i < nth; ++i) at += wire::kSectionHeaderBytes + (sections[i].data.size() + 15) / 16 * 16;
    return at;
  }
};

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
// The checksum is right for whatever the bytes are: a hostile client knows XXH3 too.
inline Bytes sealed(Bytes bytes) {
  put<std::uint64_t>(bytes, 56, 0);
  put<std::uint64_t>(bytes, 56, XXH3_64bits(bytes.data(), bytes.size()));
  return bytes;
}

class HostileClient : public ::testing::Test {
 protected:
  HostileClient() {
    node_.serve();
    other_ = node_.ready_session();
    good_.reset(new LaneClient(node_.connect(*other_, wire::Lane::kLatency)));
    good_->greet();
  }
  ~HostileClient() override {
    // Whatever the hostile ones left: the honest session's end is the end of all memory.
    for (const SessionRef& session : node_.sessions().all())
      session->end(Error(ErrorCode::kPeerGone, "the test is over"));
    EXPECT_TRUE(good_->drained());
    node_.stop_server();
    EXPECT_EQ(node_.store().usage().reserved, 0u);
  }

  void expect_others_are_served() {
    const TestBatch batch(model_, 0, 3, 2, kSeed);
    const std::uint64_t sequence = good_->send_batch(batch, 1);
    const auto reply = good_->receive_answer();
    ASSERT_TRUE(reply && reply->type() == FrameType::kReply) << error_of(reply).text;
    EXPECT_EQ(reply->header().sequence, sequence);
    std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
    test::add_reply_sums(*reply, batch, *other_, sums);
    EXPECT_EQ(sums, batch.expected(model_));
    EXPECT_FALSE(other_->ended());
  }

  TestFrame batch_frame(const wire::FrameHeader& header, std::uint32_t n_rows = 3) const {
    const TestBatch batch(model_, 0, n_rows, 2, kSeed);
    TestFrame frame{header, {}};
    frame.header.epoch = 1;
    frame.sections = {{SectionTag::kBatch, 0, bytes_of(batch.info())},
                      {SectionTag::kRows, 0, batch.gate_rows},
                      {SectionTag::kPairs, 0, bytes_of(batch.pairs)},
                      {SectionTag::kRanges, 0, bytes_of(batch.ranges)}};
    return frame;
  }
  // A frame of the type as it should be, as far as the type's sender could make it one.
  TestFrame sample(const wire::FrameHeader& header) const {
    TestFrame frame{header, {}};
    switch (header.type) {
      case FrameType::kHello:
        frame.sections = {{SectionTag::kHello, 0, bytes_of(wire::Hello{.largest_frame = 1 << 20})}};
        break;
      case FrameType::kWelcome:
        frame.sections = {{SectionTag::kWelcome, 0, bytes_of(wire::Welcome{4096, 4096, 1, 0})}};
        break;
      case FrameType::kBatch:
        return batch_frame(header);
      case FrameType::kReply:
        frame.sections = {{SectionTag::kReply, 0, bytes_of(wire::ReplyInfo{0, 1, 1, 5})},
                          {SectionTag::kSums, 0, Bytes(model_.manifest.d_model / 64)},
                          {SectionTag::kFailedRows, 0, Bytes(2)}};
        break;
      case FrameType::kBusy:
        frame.sections = {{SectionTag::kBusy, 0, bytes_of(wire::Busy{})}};
        break;
      case FrameType::kError:
        frame.sections = {{SectionTag::kError, 0, Bytes(4)}};
        break;
      case FrameType::kChallenge:
        frame.sections = {{SectionTag::kChallenge, 0, Bytes(sizeof(wire::Challenge))}};
        break;
      case FrameType::kProof:
        frame.sections = {{SectionTag::kProof, 0, Bytes(sizeof(wire::Proof))}};
        break;
      case FrameType::kAccept:
        frame.sections = {{SectionTag::kAccept, 0, Bytes(sizeof(wire::Accept))}};
        break;
      case FrameType::kSlab:
        frame.sections = {{SectionTag::kSlab, 0, bytes_of(wire::SlabPiece{0, 0, 0, 4096})},
                          {SectionTag::kSlabBytes, 0, Bytes(4096)}};
        break;
      default:  // ping, pong, credit, cancel, close: none
        break;
    }
    return frame;
  }

  // Sends `make(header)`, sealed or not as it comes, on a lane of a new session that has said hello (a hello: as the
  // first frame of a new connection). The error that comes back; the session and its connection have ended.
  wire::ErrorMessage answer_to(FrameType type, wire::Lane lane,
                               const std::function<Bytes(const wire::FrameHeader&)>& make) {
    const SessionRef session = node_.ready_session();
    LaneClient client = node_.connect(*session, lane);
    const bool stranger = type == FrameType::kHello;
    if (!stranger) client.greet();
    client.send_bytes(make(client.header(type)));
    const wire::ErrorMessage error = error_of(client.receive_answer());
    EXPECT_TRUE(client.drained());
    EXPECT_EQ(session->ended(), !stranger) << "a stranger ends nobody's session, a member its own";
    must_end(session);
    return error;
  }
  // The client may see the end of its connection before the node has ended the session.
  static void await_end(const SessionRef& session) {
    const auto end = std::chrono::steady_clock::now() + test::kPatience;
    while (!session->ended() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(session->ended());
  }
  static void must_end(const SessionRef& session) {
    if (!session->ended()) session->end(Error(ErrorCode::kPeerGone, "the case is over"));
  }

  TinyModel model_;
  NodeParts node_{model_, many_sessions()};
  SessionRef other_;
  std::unique_ptr<LaneClient> good_;

 private:
  static NodeSettings many_sessions() {
    NodeSettings settings;
    settings.budget = std::uint64_t{1} << 30;
    settings.sessions.lease = std::chrono::hours(1);
    return settings;
  }
};

inline constexpr FrameType kAllTypes[] = {
    FrameType::kHello, FrameType::kWelcome, FrameType::kBatch,     FrameType::kReply,  FrameType::kBusy,
    FrameType::kPing,  FrameType::kPong,    FrameType::kCredit,    FrameType::kCancel, FrameType::kError,
    FrameType::kClose, FrameType::kSlab,    FrameType::kChallenge, FrameType::kProof,  FrameType::kAccept};

// A session in which each type may be sent by a coordinator at all, so that sections are what is wrong.
inline wire::Lane lane_for(FrameType type) {
  return type == FrameType::kSlab ? wire::Lane::kWeights : wire::Lane::kLatency;
}

}  // namespace terrace::node::test
