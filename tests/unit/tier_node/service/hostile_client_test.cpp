// A hostile client of the data port: header fields and ids out of range, frames out of order, garbage. Each time its
// own session (or connection) ends with an error that names the fault, another session is served to the bit, and
// nothing stays behind.
#include <limits>
#include <random>

#include "tests/unit/tier_node/service/hostile_client.h"

namespace terrace::node {
namespace hostile_client_test {

using namespace test;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// ---- header --------------------------------------------------------------------------------------------------------

TEST_F(HostileClient, EveryHeaderFieldOutOfRange_NamedError) {
  struct Case {
    const char* says;
    std::function<void(Bytes&)> patch;
  };
  const std::vector<Case> cases = {
      {"type 0 is not known", [](Bytes& b) { b[6] = std::byte{0}; }},
      {"type 17 is not known", [](Bytes& b) { b[6] = std::byte{17}; }},
      {"type 255 is not known", [](Bytes& b) { b[6] = std::byte{255}; }},
      {"lane 3 is not known", [](Bytes& b) { b[7] = std::byte{3}; }},
      {"lane 255 is not known", [](Bytes& b) { b[7] = std::byte{255}; }},
      {"flags 0x8000", [](Bytes& b) { put<std::uint16_t>(b, 8, 0x8000); }},
      {"17 sections, at most 16", [](Bytes& b) { put<std::uint16_t>(b, 10, 17); }},
      {"65535 sections, at most 16", [](Bytes& b) { put<std::uint16_t>(b, 10, 65535); }},
      {"section at offset", [](Bytes& b) { put<std::uint16_t>(b, 10, 5); }},  // one more than there are
      {"bytes after its last section", [](Bytes& b) { put<std::uint16_t>(b, 10, 3); }},
      {"layer 2, the model has 2", [](Bytes& b) { put<std::uint32_t>(b, 12, 2); }},
      {"layer 4294967295", [](Bytes& b) { put<std::uint32_t>(b, 12, ~0u); }},
      {"names session 0000000000000000", [](Bytes& b) { put<std::uint64_t>(b, 16, 0); }},
      {"names session ffffffffffffffff", [](Bytes& b) { put<std::uint64_t>(b, 16, ~std::uint64_t{0}); }},
      {"lane bulk on a connection of", [](Bytes& b) { b[7] = std::byte{1}; }},
      {"sequence 0 on lane latency", [](Bytes& b) { put<std::uint64_t>(b, 24, 0); }},
  };
  for (const Case& c : cases) {
    const wire::ErrorMessage error = answer_to(FrameType::kBatch, wire::Lane::kLatency, [&](const auto& header) {
      Bytes bytes = batch_frame(header).bytes();
      c.patch(bytes);
      return sealed(bytes);
    });
    EXPECT_THAT(error.text, HasSubstr(c.says));
    EXPECT_THAT(error.code, AnyOf(ErrorCode::kCorrupt, ErrorCode::kRefused));
  }
  expect_others_are_served();
}

// A stream with such a header in it has no frames: no answer is due, only the end (docs/wire.md 8).
TEST_F(HostileClient, WrongMagicVersionOrLength_ClosedAtOnceAndOthersAreServed) {
  const std::function<void(Bytes&)> patches[] = {
      [](Bytes& b) { put<std::uint32_t>(b, 0, 0x43525255); },  [](Bytes& b) { put<std::uint16_t>(b, 4, 0); },
      [](Bytes& b) { put<std::uint16_t>(b, 4, 2); },           [](Bytes& b) { put<std::uint16_t>(b, 4, 0xffff); },
      [](Bytes& b) { put<std::uint32_t>(b, 40, 0xfffffff0); }, [](Bytes& b) { put<std::uint32_t>(b, 40, 0x3fffffff); },
      [](Bytes& b) { put<std::uint32_t>(b, 40, 17); },
  };
  for (const auto& patch : patches) {
    const SessionRef session = node_.ready_session();
    LaneClient client = node_.connect(*session, wire::Lane::kLatency);
    client.greet();
    Bytes bytes = batch_frame(client.header(FrameType::kBatch)).bytes();
    patch(bytes);
    client.send_bytes(sealed(bytes));
    EXPECT_FALSE(client.receive_answer());
    EXPECT_TRUE(client.closed());
    await_end(session);
    EXPECT_EQ(session->end_reason().code(), ErrorCode::kCorrupt) << session->end_reason().text();
  }
  expect_others_are_served();
}

// ---- fields of a batch ---------------------------------------------------------------------------------------------

struct BatchFields {
  wire::BatchInfo info;
  std::vector<wire::Pair> pairs;
  std::vector<wire::RowRange> ranges;
  Bytes rows;
};

TEST_F(HostileClient, EveryFieldOfABatchOutOfRange_NamedError) {
  constexpr std::uint32_t kHuge = ~0u;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Case {
    const char* says;
    std::function<void(BatchFields&)> bend;
  };
  const std::vector<Case> cases = {
      {"0 rows", [](BatchFields& b) { b.info.n_rows = 0; }},
      {"4294967295 rows", [](BatchFields& b) { b.info.n_rows = kHuge; }},
      {"513 rows, this session allows 1 to 512", [](BatchFields& b) { b.info.n_rows = 513; }},
      {"0 pairs", [](BatchFields& b) { b.info.n_pairs = 0; }},
      {"4294967295 pairs", [](BatchFields& b) { b.info.n_pairs = kHuge; }},
      {"0 ranges", [](BatchFields& b) { b.info.n_ranges = 0; }},
      {"4294967295 ranges", [](BatchFields& b) { b.info.n_ranges = kHuge; }},
      {"rows of 0 values", [](BatchFields& b) { b.info.d_model = 0; }},
      {"rows of 4294967295 values", [](BatchFields& b) { b.info.d_model = kHuge; }},
      {"reply form 2", [](BatchFields& b) { b.info.form = static_cast<wire::ReplyForm>(2); }},
      {"reply form 255", [](BatchFields& b) { b.info.form = static_cast<wire::ReplyForm>(255); }},
      {"priority 2", [](BatchFields& b) { b.info.priority = static_cast<wire::Priority>(2); }},
      {"gate class 3", [](BatchFields& b) { b.info.gate_class = static_cast<ActivationClass>(3); }},
      {"up class 255", [](BatchFields& b) { b.info.up_class = static_cast<ActivationClass>(255); }},
      {"has 864 bytes, expected 3072",  // rows of another size than the class needs
       [](BatchFields& b) { b.info.gate_class = b.info.up_class = ActivationClass::kF32; }},
      {"reserved bytes", [](BatchFields& b) { b.info.reserved[1] = 1; }},
      {"names expert 8, the model has 8", [](BatchFields& b) { b.pairs.back().expert = 8; }},
      {"names expert 65535", [](BatchFields& b) { b.pairs.back().expert = 65535; }},
      {"names row 3, the batch has 3 rows", [](BatchFields& b) { b.pairs.back().row = 3; }},
      {"names row 65535", [](BatchFields& b) { b.pairs.back().row = 65535; }},
      {"weight that is not finite", [](BatchFields& b) { b.pairs[1].weight = kInfinity; }},
      {"weight that is not finite", [](BatchFields& b) { b.pairs[1].weight = -kInfinity; }},
      {"weight that is not finite",
       [](BatchFields& b) { b.pairs[1].weight = std::numeric_limits<float>::quiet_NaN(); }},
      {"weight that is not finite",
       [](BatchFields& b) { b.pairs[1].weight = std::numeric_limits<float>::signaling_NaN(); }},
      {"they rise by expert, then row", [](BatchFields& b) { std::swap(b.pairs[0], b.pairs[1]); }},
      {"they rise by expert, then row", [](BatchFields& b) { b.pairs[1] = b.pairs[0]; }},
      {"range 0 is empty", [](BatchFields& b) { b.ranges[0].count = 0; }},
      {"range 0 ends at row 4, the batch has 3", [](BatchFields& b) { b.ranges[0].count = 4; }},
      {"range 0 ends at row 8589934590",
       [](BatchFields& b) {
         b.ranges[0] = {kHuge, kHuge};
       }},
      {"which lies in no range",
       [](BatchFields& b) {
         b.ranges[0] = {0, 1};
       }},
      {"value 17 of row 1 is -128", [](BatchFields& b) { b.rows[288 + 4 + 17] = std::byte{0x80}; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    const wire::ErrorMessage error = answer_to(FrameType::kBatch, wire::Lane::kLatency, [&](const auto& header) {
      TestFrame frame = batch_frame(header);
      const TestBatch batch(model_, 0, 3, 2, kSeed);
      BatchFields fields{{}, batch.pairs, batch.ranges, batch.gate_rows};
      std::memcpy(&fields.info, frame.sections[0].data.data(), sizeof fields.info);
      c.bend(fields);
      frame.sections[0].data = bytes_of(fields.info);
      frame.sections[1].data = fields.rows;
      frame.sections[2].data = bytes_of(fields.pairs);
      frame.sections[3].data = bytes_of(fields.ranges);
      return frame.bytes();
    });
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_THAT(error.text, HasSubstr(c.says));
  }
  expect_others_are_served();
}

TEST_F(HostileClient, EpochsThatAreNot_AnsweredAndTheSessionGoesOn) {
  LaneClient& client = *good_;
  for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    client.send_batch(TestBatch(model_, 0, 1, 2, kSeed), epoch);
    const wire::ErrorMessage error = error_of(client.receive_answer());
    EXPECT_EQ(error.code, ErrorCode::kStaleEpoch);
    EXPECT_THAT(error.text, HasSubstr(fmt::format("epoch {}", epoch)));
  }
  expect_others_are_served();
}

TEST_F(HostileClient, ForgetWhileItsBatchIsComputed_AnsweredFromTheOldShareAndLaterOnesAreStale) {
  const TestBatch batch(model_, 0, 2, 2, kSeed);
  node_.gate().close();
  good_->send_batch(batch, 1);
  node_.gate().await_standstill();
  must(other_->forget(1));
  node_.gate().open();
  const auto reply = good_->receive_answer();
  ASSERT_TRUE(reply && reply->type() == FrameType::kReply) << error_of(reply).text;
  std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
  test::add_reply_sums(*reply, batch, *other_, sums);
  EXPECT_EQ(sums, batch.expected(model_));
  good_->send_batch(batch, 1);
  EXPECT_EQ(error_of(good_->receive_answer()).code, ErrorCode::kStaleEpoch);
}

// ---- order ---------------------------------------------------------------------------------------------------------

TEST_F(HostileClient, AnyFrameBeforeHello_RefusedByNameAndTheSessionLives) {
  const SessionRef session = node_.ready_session();
  for (const FrameType type : kAllTypes) {
    if (type == FrameType::kHello || type == FrameType::kBatch || type == FrameType::kSlab) continue;
    LaneClient stranger = node_.connect(*session, wire::Lane::kBulk);
    stranger.send_bytes(sample(stranger.header(type)).bytes());
    const wire::ErrorMessage error = error_of(stranger.receive_answer());
    EXPECT_EQ(error.code, ErrorCode::kRefused);
    EXPECT_THAT(error.text, HasSubstr(fmt::format("the first frame is {}, not hello", wire::name(type))));
    EXPECT_TRUE(stranger.drained());
  }
  for (const FrameType type : {FrameType::kBatch, FrameType::kSlab}) {  // longer than any greeting: not even read
    LaneClient stranger = node_.connect(*session, wire::Lane::kBulk);
    stranger.send_bytes(sample(stranger.header(type)).bytes());
    EXPECT_FALSE(stranger.receive_answer());
    EXPECT_TRUE(stranger.closed());
  }
  EXPECT_FALSE(session->ended());
  must_end(session);
  expect_others_are_served();
}

TEST_F(HostileClient, SecondHelloOnAConnection_RefusedByName) {
  const wire::ErrorMessage error = answer_to(FrameType::kPing, wire::Lane::kLatency, [&](wire::FrameHeader header) {
    header.type = FrameType::kHello;
    return sample(header).bytes();
  });
  EXPECT_THAT(error.text, HasSubstr("a coordinator does not send hello frames"));
}

TEST_F(HostileClient, SequenceThatDoesNotRise_NamedError) {
  for (const std::uint64_t back : {0u, 1u}) {
    const SessionRef session = node_.ready_session();
    LaneClient client = node_.connect(*session, wire::Lane::kLatency);
    client.greet();
    wire::FrameHeader header = client.header(FrameType::kBatch);
    client.send_bytes(batch_frame(header).bytes());
    ASSERT_EQ(client.receive_answer()->type(), FrameType::kReply);
    header.sequence -= back;
    client.send_bytes(batch_frame(header).bytes());
    EXPECT_THAT(error_of(client.receive_answer()).text, HasSubstr("sequences rise"));
    EXPECT_TRUE(client.drained());
    EXPECT_TRUE(session->ended());
  }
  expect_others_are_served();
}

TEST_F(HostileClient, SlabPiecesThatNobodyAskedFor_DroppedTheirCreditReturnsAndTheSessionGoesOn) {
  const SessionRef session = node_.ready_session();
  LaneClient client = node_.connect(*session, wire::Lane::kWeights);
  const std::uint32_t granted = client.greet().credit_frames;
  const std::vector<std::byte>& slab = model_.slab(0, 0);
  for (std::uint32_t i = 0; i < 3 * granted; ++i) {
    while (client.credit_frames() <= i) ASSERT_TRUE(client.receive()) << "the credit of piece " << i << " is due";
    client.send_piece({0, 0, 0, slab.size()}, std::span(slab).first(1024));
  }
  EXPECT_FALSE(session->ended());
  must_end(session);
  EXPECT_TRUE(client.drained());
  expect_others_are_served();
}

// ---- garbage -------------------------------------------------------------------------------------------------------

TEST_F(HostileClient, BodiesOfRandomBytesUnderARightChecksum_NamedErrorAndOthersAreServed) {
  std::mt19937_64 random(kSeed);
  for (int run = 0; run < 80; ++run) {
    SCOPED_TRACE(fmt::format("seed {}, run {}", kSeed, run));
    const FrameType type = kAllTypes[1 + random() % (std::size(kAllTypes) - 1)];
    const wire::ErrorMessage error = answer_to(type, lane_for(type), [&](const wire::FrameHeader& header) {
      TestFrame frame{header, {{SectionTag::kRows, 0, Bytes(16 * (random() % 64))}}};
      Bytes bytes = frame.bytes();
      for (std::size_t at = wire::kHeaderBytes; at < bytes.size(); at += 8) put<std::uint64_t>(bytes, at, random());
      put<std::uint16_t>(bytes, 10, static_cast<std::uint16_t>(random() % 18));
      return sealed(bytes);
    });
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << error.text;
  }
  expect_others_are_served();
}

}  // namespace hostile_client_test
}  // namespace terrace::node
