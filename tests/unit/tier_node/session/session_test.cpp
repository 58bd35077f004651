#include "tier_node/session/session.h"
#include "common/wire/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "tests/unit/tier_node/session/session_testing.h"

namespace terrace::node {
namespace {

using test::must;
using test::SessionTest;
using ::testing::HasSubstr;

// ---- opening --------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, ProtocolRangesApart_RefusedWithBothRanges) {
  OpenRequest other = request();
  other.protocol_min = other.protocol_max = wire::kProtocolMax + 1;
  const Status status = refusal(other);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kRefused);
  EXPECT_THAT(status.error().text(), HasSubstr("protocol 3 to 3, this node 2 to 2"));
}

TEST_F(SessionTest, ProtocolRangesOverlap_HighestSharedIsTaken) {
  OpenRequest other = request();
  other.protocol_min = 1;
  other.protocol_max = 9;
  EXPECT_EQ(must(table_->open(other)).protocol, wire::kProtocolMax);
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
  other.required_capabilities = {"sum\n16"};
  EXPECT_THAT(refusal(other).error().text(), HasSubstr("\"sum?16\""));
  other.required_capabilities = {""};
  EXPECT_THAT(refusal(other).error().text(), HasSubstr("\"\""));
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
  const Status status = refusal_of(unknown);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().text(), HasSubstr("layer 1"));
  EXPECT_THAT(status.error().text(), HasSubstr("Q5_1"));
}

TEST_F(SessionTest, OneSlabIdUnderTwoShapes_RefusedByName) {
  manifest::Manifest confused = model_.manifest;
  confused.layers[1].ff *= 256;
  confused.slab_ids[confused.n_experts + 3] = confused.slab_id(0, 2);  // of layer 1, expert 3
  const Status status = refusal_of(confused);
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
    const Status status = refusal_of(large);
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

TEST_F(SessionTest, SessionsComeAndGo_TotalsKeepWhatTheyDid) {
  const SessionRef closed = open();
  const SessionRef failed = open();
  open();
  closed->counters().batches += 3;
  failed->counters().bytes_sent += 500;
  EXPECT_EQ(table_->totals().batches, 3u);
  ASSERT_TRUE(table_->close(closed->id()).ok());
  failed->end(Error(ErrorCode::kPeerGone, "cut"));
  const SessionTotals totals = table_->totals();
  EXPECT_EQ(totals.opened, 3u);
  EXPECT_EQ(totals.closed, 1u);
  EXPECT_EQ(totals.failed, 1u);
  EXPECT_EQ(totals.batches, 3u);
  EXPECT_EQ(totals.bytes_sent, 500u);
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

}  // namespace
}  // namespace terrace::node
