#include "tier_node/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/unit/tier_node/support/tiny_model.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node {
namespace {

using test::must;
using test::TinyModel;
using ::testing::HasSubstr;

// A table with a clock of its own and no thread of its own.
class SessionTest : public ::testing::Test {
 protected:
  explicit SessionTest(bool own_model = true)
      : store_({std::uint64_t{256} << 20, [this] {
                  in_reserve_();
                  return Result<std::uint64_t>(std::uint64_t{1} << 40);
                }}) {
    Serial serial;
    if (own_model) own_.emplace(must(OwnModel::open(model_.path, "", serial)));
    loader_ = std::make_unique<SlabLoader>(own_ ? &*own_ : nullptr, Logger::silent());
    SessionOptions options;
    options.machine = test::this_machine();
    options.housekeeping = false;
    options.clock = [this] { return now_; };
    options.max_sessions = 3;
    table_ = must(SessionTable::create(store_, options, Logger::silent()));
  }
  ~SessionTest() override {
    table_->end_all(Error(ErrorCode::kPeerGone, "the test is over"));
    loader_.reset();
  }

  OpenRequest request() const {
    OpenRequest request;
    request.protocol_min = kProtocolMin;
    request.protocol_max = kProtocolMax;
    request.numerics_version = kNumericsVersion;
    request.manifest = std::as_bytes(std::span(model_.manifest_bytes));
    request.limits = {16, 128, 4, std::uint64_t{1} << 20};
    request.coordinator = "box7";
    return request;
  }
  SessionRef open() { return must(table_->open(request())).session; }
  // Opened, with room for `slabs` of them.
  SessionRef reserved(std::uint64_t slabs) {
    SessionRef session = open();
    must(table_->reserve(*session, {slabs * model_.manifest.slab_bytes(0), 0, 0}, test::kGoOn));
    return session;
  }
  Status refusal(const OpenRequest& request) {
    const auto opened = table_->open(request);
    return opened.ok() ? Status() : Status(opened.error());
  }
  AssignProgress finish(const SessionRef& session, const AssignmentRef& assignment) {
    if (!assignment->finished()) loader_->start(session, assignment);
    AssignProgress progress = assignment->wait(std::chrono::milliseconds(0));
    while (!progress.ready && !progress.failed && progress.wanted.empty())
      progress = assignment->wait(std::chrono::milliseconds(50));
    return progress;
  }
  void assign(const SessionRef& session, std::uint64_t epoch, const std::vector<ShareItem>& items) {
    const auto assignment = session->begin_assign(epoch, items);
    ASSERT_TRUE(assignment.ok()) << assignment.error().text();
    ASSERT_TRUE(finish(session, *assignment).ready);
  }
  // Sends a slab in pieces, as if they came over the weights lane, and waits until the last is dealt with.
  void send(const SessionRef& session, const ShareItem& item, std::vector<std::byte> bytes,
            std::size_t piece_bytes = 20'000) {
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
      const std::size_t size = std::min(piece_bytes, bytes.size() - at);
      send_piece(session, {item.layer, item.expert, at, bytes.size()}, std::span(bytes).subspan(at, size));
    }
  }
  void send_piece(const SessionRef& session, const wire::SlabPiece& piece, std::span<const std::byte> data) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    loader_->receive(session, {piece, data}, [&] {
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }

  TinyModel model_;
  std::function<void()> in_reserve_ = [] {};  // runs while a reservation is made
  TimePoint now_ = std::chrono::steady_clock::now();
  std::optional<OwnModel> own_;
  arena::SlabStore store_;
  std::unique_ptr<SlabLoader> loader_;
  std::unique_ptr<SessionTable> table_;
};

class SessionWithoutFileTest : public SessionTest {
 protected:
  SessionWithoutFileTest() : SessionTest(false) {}
};

// ---- opening --------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, ProtocolRangesApart_RefusedWithBothRanges) {
  OpenRequest other = request();
  other.protocol_min = other.protocol_max = kProtocolMax + 1;
  const Status status = refusal(other);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kRefused);
  EXPECT_THAT(status.error().text(), HasSubstr("protocol 2 to 2, this node 1 to 1"));
}

TEST_F(SessionTest, ProtocolRangesOverlap_HighestSharedIsTaken) {
  OpenRequest other = request();
  other.protocol_min = 1;
  other.protocol_max = 9;
  EXPECT_EQ(must(table_->open(other)).protocol, kProtocolMax);
}

TEST_F(SessionTest, AnotherNumericsVersion_Refused) {
  OpenRequest other = request();
  other.numerics_version = 2;
  EXPECT_THAT(refusal(other).error().text(), HasSubstr("numerics version 2, this node by 1"));
}

TEST_F(SessionTest, UnknownCapability_RefusedByName) {
  OpenRequest other = request();
  other.required_capabilities = {"sum", "sum16"};
  EXPECT_THAT(refusal(other).error().text(), HasSubstr("\"sum16\""));
}

TEST_F(SessionTest, EveryByteOfTheManifestFlipped_NoneOpens) {
  OpenRequest other = request();
  std::string bytes = model_.manifest_bytes;
  other.manifest = std::as_bytes(std::span(bytes));
  for (std::size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 200) {
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    EXPECT_FALSE(table_->open(other).ok()) << "byte " << i;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
  }
}

TEST_F(SessionTest, TypeWithoutKernel_RefusedByLayerAndType) {
  manifest::Manifest unknown = model_.manifest;
  unknown.layers[1].types.gate = TensorType::kQ5_1;
  const std::string bytes = manifest::serialize(unknown);
  OpenRequest other = request();
  other.manifest = std::as_bytes(std::span(bytes));
  const Status status = refusal(other);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().text(), HasSubstr("layer 1"));
  EXPECT_THAT(status.error().text(), HasSubstr("Q5_1"));
}

TEST_F(SessionTest, OneSlabIdUnderTwoShapes_RefusedByName) {
  manifest::Manifest confused = model_.manifest;
  confused.layers[1].ff *= 256;
  confused.slab_ids[confused.n_experts + 3] = confused.slab_id(0, 2);  // of layer 1, expert 3
  const std::string bytes = manifest::serialize(confused);
  OpenRequest other = request();
  other.manifest = std::as_bytes(std::span(bytes));
  const Status status = refusal(other);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(status.error().text(), HasSubstr("layer 0, expert 2 and layer 1, expert 3 have one slab id"));
}

TEST_F(SessionTest, LimitsThatFitNoFrame_RefusedByName) {
  for (const AskedLimits& limits : std::vector<AskedLimits>{
           {0, 1, 1, 1 << 20}, {1, 0, 1, 1 << 20}, {1, 1, 0, 1 << 20}, {65537, 1, 1, 1 << 20}, {4, 4, 5, 1 << 20}}) {
    OpenRequest other = request();
    other.limits = limits;
    EXPECT_EQ(refusal(other).error().code(), ErrorCode::kRefused);
  }
  OpenRequest small_replies = request();
  small_replies.limits.largest_frame = 1000;
  EXPECT_THAT(refusal(small_replies).error().text(), HasSubstr("the coordinator takes 1000"));
  OpenRequest large_batches = request();
  large_batches.limits = {65536, ~0U, 65536, 1 << 20};
  EXPECT_THAT(refusal(large_batches).error().text(), HasSubstr("this node takes"));
}

TEST_F(SessionTest, MoreSlabsOrLayersThanAnyModelHas_Refused) {
  for (const auto& [n_layers, n_experts] : {std::pair{4097u, 1u}, std::pair{33u, 65536u}}) {
    manifest::Manifest large = model_.manifest;
    large.n_experts = n_experts;
    large.top_k = 1;
    large.layers.assign(n_layers, large.layers[0]);
    for (manifest::LayerShape& layer : large.layers) layer.n_experts = n_experts;
    large.slab_ids.assign(std::size_t{n_layers} * n_experts, large.slab_ids[0]);
    const std::string bytes = manifest::serialize(large);
    OpenRequest other = request();
    other.manifest = std::as_bytes(std::span(bytes));
    const Status status = refusal(other);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kRefused);
    EXPECT_THAT(status.error().text(), HasSubstr("a node takes 4096 and 2097152"));
  }
}

TEST_F(SessionTest, ManifestsOfAllSessionsTogether_AreBounded) {
  const SessionRef first = open();
  OpenRequest garbage = request();
  const std::vector<std::byte> bytes((std::size_t{128} << 20) - model_.manifest_bytes.size());
  garbage.manifest = bytes;
  EXPECT_EQ(refusal(garbage).error().code(), ErrorCode::kCorrupt) << "it fits, but is none";
  const SessionRef second = open();
  EXPECT_THAT(refusal(garbage).error().text(), HasSubstr("keeps 134217728 for all sessions"));
  must(table_->close(second->id()));
  EXPECT_EQ(refusal(garbage).error().code(), ErrorCode::kCorrupt);
}

TEST_F(SessionTest, MoreSessionsThanAllowed_Refused) {
  for (int i = 0; i < 3; ++i) (void)open();
  EXPECT_THAT(refusal(request()).error().text(), HasSubstr("3 sessions are open"));
}

TEST_F(SessionTest, Draining_RefusesNewSessionsAndEndsWithTheLast) {
  const SessionRef session = open();
  table_->drain();
  EXPECT_THAT(refusal(request()).error().text(), HasSubstr("draining"));
  EXPECT_FALSE(table_->drained());
  must(table_->close(session->id()));
  EXPECT_TRUE(table_->drained());
}

TEST_F(SessionTest, NamesAreMadePrintable) {
  OpenRequest other = request();
  other.coordinator = "a\nb\x1b[31m";
  EXPECT_EQ(must(table_->open(other)).session->coordinator(), "a?b?[31m");
}

// ---- leases ---------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, NoHeartbeat_LeaseEndsSessionAndFreesItsMemory) {
  const SessionRef session = reserved(4);
  now_ += table_->lease() - std::chrono::milliseconds(1);
  table_->keep_house();
  EXPECT_FALSE(session->ended());
  now_ += std::chrono::milliseconds(1);
  table_->keep_house();
  EXPECT_TRUE(session->ended());
  EXPECT_THAT(session->end_reason().text(), HasSubstr("no heartbeat came for 10000 ms"));
  EXPECT_EQ(store_.usage().reserved, 0u);
  EXPECT_EQ(table_->find(session->id()).error().code(), ErrorCode::kNotFound);
}

TEST_F(SessionTest, Heartbeats_KeepTheSession) {
  const SessionRef session = open();
  for (int i = 0; i < 10; ++i) {
    now_ += table_->lease() / 2;
    must(table_->heartbeat(session->id()));
    table_->keep_house();
  }
  EXPECT_FALSE(session->ended());
}

// ---- reservations ---------------------------------------------------------------------------------------------------

TEST_F(SessionTest, Reserve_AddsTheNodesOwnNeedsAndRefusesASecond) {
  const SessionRef session = open();
  const std::uint64_t slabs = 4 * model_.manifest.slab_bytes(0);
  const auto reserved = table_->reserve(*session, {slabs, 0, 0}, test::kGoOn);
  ASSERT_TRUE(reserved.ok());
  EXPECT_GE(*reserved, slabs + session->limits().staging_bytes() + session->limits().scratch_bytes());
  EXPECT_EQ(table_->reserve(*session, {slabs, 0, 0}, test::kGoOn).error().code(), ErrorCode::kInvalidArgument);
  must(session->release());
  EXPECT_EQ(store_.usage().reserved, 0u);
}

// A lease is ten seconds, touching the memory of a large share takes longer: this one takes eleven.
TEST_F(SessionTest, ReserveLongerThanTheLease_SessionLivesAndAWholeLeaseBegins) {
  const SessionRef session = open();
  in_reserve_ = [&] {
    now_ += std::chrono::seconds(11);
    table_->keep_house();
  };
  EXPECT_TRUE(table_->reserve(*session, {model_.manifest.slab_bytes(0), 0, 0}, test::kGoOn).ok());
  EXPECT_FALSE(session->ended());
  now_ += table_->lease() - std::chrono::milliseconds(1);
  table_->keep_house();
  EXPECT_FALSE(session->ended());
  now_ += std::chrono::milliseconds(1);
  table_->keep_house();
  EXPECT_TRUE(session->ended());
}

TEST_F(SessionTest, ReserveWhileOneIsBeingMade_Busy) {
  const SessionRef session = open();
  std::optional<Error> second;
  in_reserve_ = [&] { second = table_->reserve(*session, {4096, 0, 0}, test::kGoOn).error(); };
  EXPECT_TRUE(table_->reserve(*session, {4096, 0, 0}, test::kGoOn).ok());
  ASSERT_TRUE(second);
  EXPECT_EQ(second->code(), ErrorCode::kBusy);
}

TEST_F(SessionTest, ReserveThatNobodyWaitsFor_GivenUpAndNothingTaken) {
  const SessionRef session = open();
  const auto reserved = table_->reserve(*session, {4096, 0, 0}, [] { return false; });
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().code(), ErrorCode::kPeerGone);
  EXPECT_EQ(store_.usage().reserved, 0u);
  EXPECT_TRUE(table_->reserve(*session, {4096, 0, 0}, test::kGoOn).ok());
}

TEST_F(SessionTest, SessionEndedDuringReserve_ItsReasonAndNothingTaken) {
  const SessionRef session = open();
  in_reserve_ = [&] { must(table_->close(session->id())); };
  EXPECT_FALSE(table_->reserve(*session, {4096, 0, 0}, test::kGoOn).ok());
  EXPECT_EQ(store_.usage().reserved, 0u);
}

TEST_F(SessionTest, SlabBytesAsTheFileHasThem_AreEnoughForTheSlabs) {
  const SessionRef session = reserved(model_.everything().size());
  assign(session, 1, model_.everything());
}

TEST_F(SessionTest, MoreThanTheBudget_RefusedWithNumbersAndNothingTaken) {
  const SessionRef session = open();
  const auto refused = table_->reserve(*session, {std::uint64_t{1} << 40, 0, 0}, test::kGoOn);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().text(), HasSubstr("free of a budget of 256M"));
  EXPECT_EQ(store_.usage().reserved, 0u);
}

// ---- epochs ---------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AssignFromOwnFile_EpochHoldsTheShareAndTheFilesBytes) {
  const SessionRef session = reserved(3);
  assign(session, 1, {{0, 2}, {0, 5}, {1, 0}});
  const EpochRef epoch = must(session->find_epoch(1));
  EXPECT_TRUE(epoch->holds(0, 2) && epoch->holds(0, 5) && epoch->holds(1, 0));
  EXPECT_FALSE(epoch->holds(0, 0) || epoch->holds(1, 2));
  const kernels::SlabView found = epoch->slab(0, 5), expected = model_.view(0, 5);
  const manifest::LayerShape& shape = model_.manifest.layers[0];
  EXPECT_EQ(std::memcmp(found.gate, expected.gate, shape.gate_bytes()), 0);
  EXPECT_EQ(std::memcmp(found.up, expected.up, shape.up_bytes()), 0);
  EXPECT_EQ(std::memcmp(found.down, expected.down, shape.down_bytes()), 0);
}

TEST_F(SessionTest, SharesThatAreWrong_RefusedByLayerAndExpert) {
  const SessionRef session = reserved(8);
  for (const std::vector<ShareItem>& share :
       std::vector<std::vector<ShareItem>>{{{2, 0}}, {{0, 8}}, {{0, 1}, {0, 1}}, {{0, 2}, {0, 1}}, {{1, 0}, {0, 0}}}) {
    const auto assignment = session->begin_assign(1, share);
    ASSERT_FALSE(assignment.ok());
    EXPECT_EQ(assignment.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(open()->begin_assign(1, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument) << "no reservation";
}

TEST_F(SessionTest, EpochNumbersMustRise) {
  const SessionRef session = reserved(2);
  EXPECT_FALSE(session->begin_assign(0, {}).ok());
  assign(session, 3, {{0, 0}});
  EXPECT_EQ(session->begin_assign(3, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->begin_assign(2, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SessionTest, ThirdEpochWithNewSlabs_BusyUntilTheOldestIsForgotten) {
  const SessionRef session = reserved(6);
  assign(session, 1, {{0, 0}});
  assign(session, 2, {{0, 0}, {0, 1}});
  const auto third = session->begin_assign(3, {{0, 2}});
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(third.error().text(), HasSubstr("holds 1, 2"));
  must(session->forget(1));
  assign(session, 3, {{0, 2}});
}

TEST_F(SessionTest, EpochsWithoutNewSlabs_AlwaysAccepted) {
  const SessionRef session = reserved(4);
  assign(session, 1, {{0, 0}, {0, 1}});
  assign(session, 2, {{0, 1}, {0, 2}});
  for (std::uint64_t epoch = 3; epoch < 10; ++epoch) assign(session, epoch, {{0, 0}, {0, 2}});
  for (std::uint64_t epoch = 1; epoch < 10; ++epoch) EXPECT_TRUE(session->find_epoch(epoch).ok());
}

TEST_F(SessionTest, MoreEpochsThanMayLive_BusyUntilTheOldestIsForgotten) {
  const SessionRef session = reserved(4);
  assign(session, 1, {{0, 0}});
  for (std::uint64_t epoch = 2; epoch <= EpochBook::kMaxLive; ++epoch) assign(session, epoch, {});
  const auto refused = session->begin_assign(EpochBook::kMaxLive + 1, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(refused.error().text(), HasSubstr("holds 1, 2, 3, 4, 5, 6, 7, 8 and 56 more; forget the oldest"));
  must(session->forget(1));
  assign(session, EpochBook::kMaxLive + 1, {{0, 0}});
}

TEST_F(SessionTest, LiveEpochsOfTooManyExpertsInAll_BusyAndChargedBefore) {
  const SessionRef session = reserved(16);
  const std::uint64_t held = session->model().max_live_items() * EpochBook::kBytesAnItem;
  EXPECT_GE(store_.usage().reserved, session->limits().scratch_bytes() + held);
  for (std::uint64_t epoch = 1; epoch <= 8; ++epoch) assign(session, epoch, model_.everything());
  const auto refused = session->begin_assign(9, {{0, 0}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(refused.error().text(), HasSubstr("129 experts, 128 is the most"));
  must(session->forget(1));
  assign(session, 9, {{0, 0}});
}

TEST_F(SessionTest, ForgottenEpoch_StaleNamingBothAndItsSlabsAreFree) {
  const SessionRef session = reserved(4);
  assign(session, 40, {{0, 0}});
  assign(session, 41, {{0, 1}});
  const std::uint64_t used = store_.usage().used;
  must(session->forget(40));
  const auto found = session->find_epoch(40);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kStaleEpoch);
  EXPECT_THAT(found.error().text(), HasSubstr("epoch 40"));
  EXPECT_THAT(found.error().text(), HasSubstr("holds 41"));
  EXPECT_EQ(store_.usage().used, used / 2);
  EXPECT_EQ(session->forget(40).error().code(), ErrorCode::kStaleEpoch);
}

TEST_F(SessionTest, ForgottenWhileABatchRuns_SlabsStayUntilItEnds) {
  const SessionRef session = reserved(1);
  assign(session, 1, {{0, 0}});
  EpochRef batch = must(session->find_epoch(1));
  must(session->forget(1));
  EXPECT_EQ(std::memcmp(batch->slab(0, 0).gate, model_.view(0, 0).gate, 64), 0);
  EXPECT_GT(store_.usage().used, 0u);
  batch.reset();
  EXPECT_EQ(store_.usage().used, 0u);
}

TEST_F(SessionTest, ShareLargerThanTheReservation_RefusedWithBoth) {
  const SessionRef session = reserved(2);
  const auto assignment = session->begin_assign(1, model_.everything());
  ASSERT_FALSE(assignment.ok());
  EXPECT_EQ(assignment.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(assignment.error().text(), HasSubstr("16 new slabs"));
}

TEST_F(SessionTest, TwoSessionsOfOneModel_ShareTheSlabs) {
  const SessionRef a = reserved(4), b = reserved(4);
  assign(a, 1, {{0, 0}, {0, 1}});
  const std::uint64_t used = store_.usage().used;
  assign(b, 1, {{0, 0}, {0, 1}});
  EXPECT_EQ(store_.usage().used, used);
  EXPECT_EQ(must(a->find_epoch(1))->slab(0, 0).gate, must(b->find_epoch(1))->slab(0, 0).gate);
  must(table_->close(a->id()));
  EXPECT_EQ(std::memcmp(must(b->find_epoch(1))->slab(0, 1).gate, model_.view(0, 1).gate, 64), 0);
}

TEST_F(SessionTest, AnotherSessionClaimsASlabsIdUnderAnotherShape_NeverGetsIt) {
  const SessionRef honest = reserved(1);
  assign(honest, 1, {{0, 0}});
  for (const auto& [ff_factor, down] : {std::pair{256u, TensorType::kQ8_0}, std::pair{1u, TensorType::kF32}}) {
    manifest::Manifest lie = model_.manifest;
    for (manifest::LayerShape& layer : lie.layers) {
      layer.ff *= ff_factor;
      layer.types.down = down;
    }
    const std::string bytes = manifest::serialize(lie);
    OpenRequest other = request();
    other.manifest = std::as_bytes(std::span(bytes));
    const SessionRef liar = must(table_->open(other)).session;
    must(table_->reserve(*liar, {lie.slab_bytes(0), 0, 0}, test::kGoOn));
    const AssignmentRef assignment = must(liar->begin_assign(1, {{0, 0}}));
    EXPECT_FALSE(assignment->finished()) << "ready without one byte sent";
    EXPECT_FALSE(liar->find_epoch(1).ok());
    must(table_->close(liar->id()));
  }
}

// ---- the weights lane -----------------------------------------------------------------------------------------------

TEST_F(SessionWithoutFileTest, SlabsInPieces_EpochIsReady) {
  const SessionRef session = reserved(2);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 3}, {1, 7}}));
  loader_->start(session, assignment);
  AssignProgress progress = assignment->wait(std::chrono::seconds(10));
  EXPECT_EQ(progress.wanted, (std::vector<ShareItem>{{0, 3}, {1, 7}})) << "the first answer lists all";
  EXPECT_FALSE(session->find_epoch(1).ok());
  send(session, {1, 7}, model_.slab(1, 7));
  EXPECT_FALSE(assignment->finished());
  send(session, {0, 3}, model_.slab(0, 3), 1);
  progress = assignment->wait(std::chrono::milliseconds(0));
  EXPECT_TRUE(progress.ready);
  EXPECT_EQ(progress.slabs_ready, 2u);
  EXPECT_EQ(progress.bytes_ready, 2 * model_.manifest.slab_bytes(0));
  EXPECT_EQ(std::memcmp(must(session->find_epoch(1))->slab(0, 3).down, model_.view(0, 3).down, 64), 0);
}

TEST_F(SessionWithoutFileTest, SlabWithOneWrongBit_EndsTheSessionNamingIt) {
  const SessionRef session = reserved(1);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 3}}));
  loader_->start(session, assignment);
  std::vector<std::byte> wrong = model_.slab(0, 3);
  wrong[wrong.size() / 2] ^= std::byte{1};
  send(session, {0, 3}, wrong);
  ASSERT_TRUE(session->ended());
  EXPECT_EQ(session->end_reason().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(session->end_reason().text(), HasSubstr("layer 0, expert 3 from the coordinator"));
  EXPECT_TRUE(assignment->wait(std::chrono::milliseconds(0)).failed);
}

TEST_F(SessionWithoutFileTest, PiecesThatBreakTheRules_EndTheSessionByName) {
  struct Case {
    wire::SlabPiece piece;
    const char* says;
  };
  const std::uint64_t bytes = model_.manifest.slab_bytes(0);
  const std::vector<Case> cases = {
      {{0, 4, 0, bytes}, "not asked for"},         {{7, 3, 0, bytes}, "not asked for"},
      {{0, 3, 100, bytes}, "begins at byte 100"},  {{0, 3, 0, bytes + 1}, "says the slab has"},
      {{0, 3, 0, bytes - 1}, "says the slab has"},
  };
  for (const Case& c : cases) {
    const SessionRef session = reserved(1);
    loader_->start(session, must(session->begin_assign(1, {{0, 3}})));
    send_piece(session, c.piece, std::span(model_.slab(0, 3)).first(50));
    ASSERT_TRUE(session->ended()) << c.says;
    EXPECT_THAT(session->end_reason().text(), HasSubstr(c.says));
    EXPECT_THAT(session->end_reason().text(), HasSubstr("layer"));
  }
}

TEST_F(SessionWithoutFileTest, PieceSentTwice_EndsTheSession) {
  const SessionRef session = reserved(1);
  loader_->start(session, must(session->begin_assign(1, {{0, 3}})));
  const std::uint64_t bytes = model_.manifest.slab_bytes(0);
  const auto piece = std::span(model_.slab(0, 3)).first(50);
  send_piece(session, {0, 3, 0, bytes}, piece);
  EXPECT_FALSE(session->ended());
  send_piece(session, {0, 3, 0, bytes}, piece);
  ASSERT_TRUE(session->ended());
  EXPECT_THAT(session->end_reason().text(), HasSubstr("begins at byte 0, 50 is next"));
}

TEST_F(SessionWithoutFileTest, AssignmentAbandoned_LatePiecesAreDroppedAndTheNextGoesThrough) {
  const SessionRef session = reserved(2);
  const AssignmentRef abandoned = must(session->begin_assign(1, {{0, 3}}));
  loader_->start(session, abandoned);
  session->abandon_assign(abandoned, Error(ErrorCode::kPeerGone, "cancelled"));
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_FALSE(session->ended());
  const AssignmentRef next = must(session->begin_assign(2, {{0, 3}}));
  loader_->start(session, next);
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_TRUE(next->wait(std::chrono::milliseconds(0)).ready);
}

// The loader has looked at the assignment, the session is released, and then the slab would be allocated.
TEST_F(SessionWithoutFileTest, ReservationReleasedWhileAPieceIsOnItsWay_SessionLives) {
  const SessionRef session = reserved(2);
  loader_->start(session, must(session->begin_assign(1, {{0, 3}})));
  must(session->release());
  EXPECT_EQ(session->allocate_slab(session->model().slab_id({0, 3}), session->model().layer(0).sizes).error().code(),
            ErrorCode::kRefused);
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_FALSE(session->ended());
}

TEST_F(SessionWithoutFileTest, AbandonedAssignment_CannotBecomeLiveAfterwards) {
  const SessionRef session = reserved(2);
  const AssignmentRef abandoned = must(session->begin_assign(1, {{0, 3}}));
  session->abandon_assign(abandoned, Error(ErrorCode::kPeerGone, "cancelled"));
  session->finish_assign(abandoned);  // its last slab came at the same time
  EXPECT_FALSE(session->find_epoch(1).ok());
}

TEST_F(SessionWithoutFileTest, SecondAssignmentWithNewSlabsWhileOneWaits_Busy) {
  const SessionRef session = reserved(2);
  loader_->start(session, must(session->begin_assign(1, {{0, 3}})));
  EXPECT_EQ(session->begin_assign(2, {{0, 4}}).error().code(), ErrorCode::kBusy);
  EXPECT_TRUE(session->begin_assign(2, {}).ok()) << "no new slab";
}

TEST_F(SessionTest, OwnFileChangedSinceItWasHashed_AsksTheCoordinatorForThatSlab) {
  // A copy whose bytes differ from its manifest in one slab: as a file that was written to after the start.
  const auto copy = std::filesystem::temp_directory_path() / "terrace_session_test.gguf";
  std::filesystem::copy_file(model_.path, copy, std::filesystem::copy_options::overwrite_existing);
  Serial serial;
  const OwnModel own = must(OwnModel::open(copy, "", serial));
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    const auto& down = model_.experts.layers[0].down;
    file.seekp(static_cast<std::streamoff>(down.file_offset + 5 * down.stride + 2));
    file.put('\x55').put('\x33');
  }
  std::string logged;
  const Logger log = Logger::to_function(LogLevel::kWarn, [&](LogLevel, std::string_view text) { logged += text; });
  loader_ = std::make_unique<SlabLoader>(&own, log);
  const SessionRef session = reserved(3);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 4}, {0, 5}, {0, 6}}));
  loader_->start(session, assignment);
  AssignProgress progress;
  while (progress.wanted.empty() && !progress.ready) progress = assignment->wait(std::chrono::milliseconds(50));
  EXPECT_EQ(progress.wanted, (std::vector<ShareItem>{{0, 5}}));
  send(session, {0, 5}, model_.slab(0, 5));
  EXPECT_TRUE(assignment->wait(std::chrono::seconds(10)).ready);
  loader_.reset();
  EXPECT_THAT(logged, HasSubstr("layer 0, expert 5 from " + copy.string()));
  std::filesystem::remove(copy);
}

}  // namespace
}  // namespace terrace::node
