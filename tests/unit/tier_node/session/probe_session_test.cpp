// Probes: sessions whose slabs the node makes itself, and what a hostile one cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/manifest/probe_slab.h"
#include "tests/unit/tier_node/session/session_testing.h"

namespace terrace::node {
namespace {

using test::must;
using ::testing::HasSubstr;

class ProbeSession : public test::SessionTest {
 protected:
  ProbeSession() : SessionTest(false) {
    manifest::Manifest manifest = model_.manifest;
    for (std::uint32_t layer = 0; layer < manifest.n_layers(); ++layer)
      for (std::uint32_t expert = 0; expert < manifest.n_experts; ++expert) {
        std::vector<std::byte> slab(manifest.slab_bytes(layer));
        manifest::make_probe_slab(layer, expert, slab);
        manifest.slab_ids[std::size_t{layer} * manifest.n_experts + expert] =
            manifest::slab_id_of(manifest.layers[layer], slab);
      }
    made_manifest_ = manifest::serialize(manifest);
  }
  SessionRef open_made() {
    OpenRequest made = request();
    made.manifest = std::as_bytes(std::span(made_manifest_));
    return must(table_->open(made)).session;
  }
  SessionRef begun(const SessionRef& session) {
    must(table_->begin_probe(session->id()));
    must(table_->reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
    return session;
  }

  std::string made_manifest_;
};

TEST_F(ProbeSession, SlabsAreMadeHere_NoneIsWanted) {
  const SessionRef session = begun(open_made());
  const AssignmentRef assignment = must(session->begin_assign(1, model_.everything()));
  const AssignProgress progress = finish(session, assignment);
  EXPECT_TRUE(progress.ready);
  EXPECT_TRUE(progress.wanted.empty());
  const EpochRef epoch = must(session->find_epoch(1));
  std::vector<std::byte> expected(model_.manifest.slab_bytes(1));
  manifest::make_probe_slab(1, 3, expected);
  EXPECT_EQ(std::memcmp(epoch->slab(1, 3).gate, expected.data(), model_.manifest.layers[1].gate_bytes()), 0);
}

// A slab of a probe is shared by its id like any other: it must be the bytes that the id says.
TEST_F(ProbeSession, IdsOfOtherBytes_AreRefusedAndNeverServed) {
  const SessionRef session = begun(open());
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 0}}));
  const AssignProgress progress = finish(session, assignment);
  ASSERT_TRUE(progress.failed);
  EXPECT_EQ(progress.failed->code(), ErrorCode::kCorrupt);
  EXPECT_THAT(progress.failed->text(), HasSubstr("layer 0, expert 0 from the making of a probe"));
  EXPECT_FALSE(session->find_epoch(1).ok());
  // Another session that asks for the same id does not find it.
  const SessionRef honest = open();
  must(table_->reserve(*honest, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  EXPECT_FALSE(must(honest->begin_assign(1, {{0, 0}}))->complete());
}

TEST_F(ProbeSession, ASecondOne_IsBusyUntilTheFirstHasEnded) {
  const SessionRef first = begun(open_made()), second = open_made();
  const Status busy = table_->begin_probe(second->id());
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(busy.error().text(), HasSubstr(first->name()));
  must(table_->close(first->id()));
  EXPECT_TRUE(table_->begin_probe(second->id()).ok());
}

TEST_F(ProbeSession, WithAReservationOrTwice_Refused) {
  const SessionRef session = reserved(1);
  EXPECT_EQ(table_->begin_probe(session->id()).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(session->is_probe());
  const SessionRef probe = begun(open_made());
  EXPECT_EQ(table_->begin_probe(probe->id()).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(table_->begin_probe(12345).error().code(), ErrorCode::kNotFound);
}

TEST_F(ProbeSession, MoreMemoryThanAProbeMayHave_RefusedBeforeAnyIsTaken) {
  const SessionRef session = open_made();
  must(table_->begin_probe(session->id()));
  const auto reserved = table_->reserve(*session, {Session::kMaxProbeBytes + 1, 0, 0}, [] {
    ADD_FAILURE();
    return true;
  });
  ASSERT_FALSE(reserved.ok());
  EXPECT_THAT(reserved.error().text(), HasSubstr("a probe may have 1073741824"));
  EXPECT_EQ(store_.usage().reserved, 0u);
}

TEST_F(ProbeSession, ItsTimeIsOver_WhateverHeartbeatsSay) {
  const SessionRef session = begun(open_made());
  const TimePoint end = now_ + table_->max_probe_time();
  while (now_ + std::chrono::seconds(5) < end) {
    now_ += std::chrono::seconds(5);
    must(table_->heartbeat(session->id()));
    table_->keep_house();
    ASSERT_FALSE(session->ended());
  }
  must(table_->heartbeat(session->id()));
  now_ = end;
  table_->keep_house();
  ASSERT_TRUE(session->ended());
  EXPECT_THAT(session->end_reason().text(), HasSubstr("the probe's time is over"));
  table_->keep_house();
  EXPECT_EQ(store_.usage().reserved, 0u);
}

}  // namespace
}  // namespace terrace::node
